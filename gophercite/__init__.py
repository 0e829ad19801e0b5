"""Language models that answer a question and prove it with a verbatim quote, in JAX."""

__version__ = "0.1.0"
