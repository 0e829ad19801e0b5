"""Forms of tests that the suite leaves out by default: they take long and rarely find more.

What is left out of a test's settings must be in others that are not: each setting, and each two
that could meddle with one another.
"""

import os

import pytest

IS_LONG = "LONG_TESTS" in os.environ
LONG = pytest.mark.skipif(not IS_LONG, reason="a long form: LONG_TESTS=1 runs it")
