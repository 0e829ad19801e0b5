"""Sources, converters, preprocessors and seqio tasks: the only package that uses TensorFlow."""

import os

# TensorFlow's notices at start and exit say nothing about the data; its exceptions still come.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
