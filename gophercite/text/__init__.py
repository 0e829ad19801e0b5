"""Plain text: words, sentences, and how much two texts share."""
