"""How a learner is run: the loop, checkpoints, metrics, early stopping, preemption."""
