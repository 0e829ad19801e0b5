"""Work that XLA's CPU backend does badly, written for it: numba, sixteen numbers at a time."""
