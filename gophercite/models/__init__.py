"""A decoder-only Transformer: its parts, families and sizes, and the models built from it."""
