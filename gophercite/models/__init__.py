"""A decoder-only Transformer, its families and sizes, and the folder format of trained models."""
