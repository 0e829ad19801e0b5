"""Published checkpoints as model folders."""
