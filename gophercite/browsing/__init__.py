"""A model in the text browser: it reads the environment's prompts and writes the next text."""
