"""Generates a small closed world on which to learn question answering with quotes."""
