"""Data pipelines: sources, converters, preprocessors and seqio tasks; TensorFlow lives only here."""

import os

# TensorFlow's notices at start and exit say nothing about the data; its errors stay.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
