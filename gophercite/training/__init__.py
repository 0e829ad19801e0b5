"""Runs a learner: the loop, checkpoints, early stopping, preemption."""
