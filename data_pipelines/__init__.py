"""Sources, converters, preprocessors and seqio tasks: the only package that uses TensorFlow."""

import os

# TensorFlow's notices at start and exit say nothing about the data; its exceptions still come.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

# TensorFlow brings an SQLite of its own, without full-text search, which takes the place of
# Python's in a process that loads TensorFlow first: `gophercite.retrieval` needs Python's.
import sqlite3 as _sqlite3  # noqa: F401
