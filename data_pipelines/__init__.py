"""seqio tasks and mixtures, converters, and the bundled sample world."""
