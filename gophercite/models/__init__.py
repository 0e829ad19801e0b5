"""One decoder-only Transformer, its families and sizes, and the folder that holds a trained one."""
