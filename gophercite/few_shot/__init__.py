"""Prompting a base model with a few examples for the first training data (sections 2.5 and H)."""
