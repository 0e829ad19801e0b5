"""Plain text: words, sentences, and the similarity of two texts."""
