"""Errors of vocabularies."""


class VocabularyError(ValueError):
    """A tokenizer that can't be used here, or a text that it can't encode."""
