"""Sources, converters, preprocessors and seqio tasks: the only package that uses TensorFlow."""

import os

# TensorFlow's notices at start and exit say nothing about the data; its exceptions still arrive.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

# TensorFlow has its own SQLite, without full-text search, which replaces Python's in a process that
# loads TensorFlow first, but `gophercite.retrieval` needs Python's.
import sqlite3 as _sqlite3  # noqa: F401
