"""Sources, converters, preprocessors and seqio tasks: the only package that uses TensorFlow."""

import os

# Silence TensorFlow's messages at start and exit, which say nothing about the data. Exceptions are
# raised as usual.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

# `gophercite.retrieval` needs Python's SQLite. TensorFlow has its own, without full-text search,
# which replaces Python's if it is loaded first.
import sqlite3 as _sqlite3  # noqa: F401
