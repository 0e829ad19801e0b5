"""Eight simulated devices for every test: set before JAX makes its first array."""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import jax

jax.config.update("jax_num_cpu_devices", 8)
