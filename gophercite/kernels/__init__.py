"""Kernels for operations that XLA's CPU backend does slowly, in numba with SIMD vectors."""
