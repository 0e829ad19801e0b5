"""Published peaks of accelerators, and slices of them to plan for without having them.

A device is as in JAX: a core for TPU v2 and v3, a chip for the others.
"""

import dataclasses
import re
from collections.abc import Sequence
from typing import Any

import jax
from jax.experimental import topologies

GIB = 2**30


@dataclasses.dataclass(frozen=True)
class Chip:
    """A device's theoretical peaks; real programs are slower.

    Attributes:
      name: the kind's name.
      flops: bfloat16 operations per second.
      memory: bytes of main memory available to programs; for TPUs what libtpu 0.0.42 leaves of
        the published size.
      bandwidth: bytes per second between that memory and its cores.
      links: bytes per second that it can send to others, over all its links.
      source: where these numbers are published.
    """

    name: str
    flops: float
    memory: float
    bandwidth: float
    links: float
    source: str


# Links are published in Gbit/s per chip for both directions together; half of that can send. A core
# of v3 has half of its chip's resources.
CHIPS = {
    chip.name: chip
    for chip in (
        Chip("v3", 61.5e12, 15.48 * GIB, 450e9, 20.5e9, "cloud.google.com/tpu/docs/v3"),
        Chip("v4", 275e12, 30.75 * GIB, 1228e9, 150e9, "cloud.google.com/tpu/docs/v4"),
        Chip("v5e", 197e12, 15.75 * GIB, 819e9, 100e9, "cloud.google.com/tpu/docs/v5e"),
        Chip("v5p", 459e12, 95.74 * GIB, 2765e9, 300e9, "cloud.google.com/tpu/docs/v5p"),
        Chip("v6e", 918e12, 31.25 * GIB, 1640e9, 200e9, "cloud.google.com/tpu/docs/v6e"),
        Chip("gpu", 989e12, 80e9, 3350e9, 450e9, "H100 SXM: nvidia.com/en-us/data-center/h100"),
        Chip("cpu", 1e12, 16 * GIB, 50e9, 10e9, "no source: a placeholder for tests"),
    )
}
# Settings that a kind's compiler needs.
_OPTIONS: dict[str, dict[str, Any]] = {"v4": {"chip_config_name": "megacore"}}
_SIZES = re.compile(r"\d+(x\d+){1,2}")


class TopologyError(ValueError):
    """A slice that can't be planned for; the message names it and a valid one."""


@dataclasses.dataclass(frozen=True)
class Topology:
    """Devices to compile for.

    Attributes:
      name: the slice's name as typed: `v3:8x8`, `cpu-8`.
      chip: the kind of devices.
      devices: the slice's devices.
    """

    name: str
    chip: Chip
    devices: Sequence[Any]


def simulated_devices(name: str) -> int | None:
    """The number of simulated devices in a name such as `cpu-256` or `gpu-64`; None for TPUs.

    Raises:
      TopologyError: the name is not a slice's.
    """
    kind, separator, size = name.partition("-")
    if kind in ("cpu", "gpu") and separator:
        if not size.isdecimal() or int(size) < 1:
            raise TopologyError(
                f"{name}: the number of devices is missing or wrong; write it as in {kind}-64"
            )
        return int(size)
    _tpu(name)
    return None


def topology(name: str) -> Topology:
    """Returns the devices of a slice; TPU slices need libtpu, but no TPU.

    Args:
      name: kind and shape of a TPU slice (`v3:8x8`, `v5p:4x4x8`), or `cpu-N` or `gpu-N`: N devices
        of this machine's CPU, which XLA has to simulate (`simulated_devices`). Their sharding and
        traffic are also valid for GPUs; their memory is approximate.

    Raises:
      TopologyError: there is no such slice, libtpu is missing or in use by another process, or too
        few devices are simulated.
    """
    count = simulated_devices(name)
    if count is not None:
        devices = jax.devices("cpu")
        if len(devices) < count:
            raise TopologyError(
                f"{name}: XLA simulates {len(devices)} devices; set "
                f"XLA_FLAGS=--xla_force_host_platform_device_count={count} before JAX is imported"
            )
        return Topology(name, CHIPS[name.partition("-")[0]], devices[:count])
    kind, sizes = _tpu(name)
    try:
        found = topologies.get_topology_desc(f"{kind}:{sizes}", "tpu", **_OPTIONS.get(kind, {}))
    except RuntimeError as error:
        if "not installed" in str(error):
            raise TopologyError(
                f"{name}: compiling for TPUs needs libtpu, which is not installed: pip install "
                "'gophercite[tpu]'"
            ) from None
        raise _no_slice(name, error) from error
    except Exception as error:
        raise _no_slice(name, error) from error
    return Topology(name, CHIPS[kind], found.devices)


def _no_slice(name: str, error: Exception) -> TopologyError:
    first = str(error).splitlines()[0] if str(error) else type(error).__name__
    if "lockfile" in first:
        return TopologyError(
            f"{name}: another process uses libtpu; set ALLOW_MULTIPLE_LIBTPU_LOAD=1"
        )
    return TopologyError(f"{name}: there is no such slice ({first})")


def _tpu(name: str) -> tuple[str, str]:
    kind, _, sizes = name.partition(":")
    tpus = [known for known in CHIPS if known.startswith("v")]
    if kind not in tpus or not _SIZES.fullmatch(sizes):
        raise TopologyError(
            f"{name!r} is not a slice: give a TPU's kind ({', '.join(tpus)}) and shape, such as "
            "v3:8x8 or v5p:4x4x8, or cpu-N or gpu-N"
        )
    return kind, sizes
