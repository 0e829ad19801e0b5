"""What goes wrong with a vocabulary."""


class VocabularyError(ValueError):
    """A tokenizer that cannot be used here, or a text that it cannot hold."""
