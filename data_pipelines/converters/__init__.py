"""Converters from public question-answering data sets to the project's records."""
