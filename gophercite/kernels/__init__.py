"""A C++ kernel for an operation that is slow on XLA's CPU backend, compiled where it runs."""
