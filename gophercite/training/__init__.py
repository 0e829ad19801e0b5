"""Runs a learner: the loop, checkpoints, metrics, early stopping, preemption."""
