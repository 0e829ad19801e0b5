"""A generator of a small closed world to learn question answering with quotes on."""
