"""TPU slices by the names under which Google rents them: runtimes, topologies, hosts."""

import dataclasses
import re


class AcceleratorError(ValueError):
    """There is no such slice; the message lists the known ones."""


@dataclasses.dataclass(frozen=True)
class Generation:
    """One generation of TPUs.

    Attributes:
      runtime: software version of its virtual machines on which JAX is installed.
      cores: number that a name counts per chip: v4-8 is four chips, v6e-8 is eight.
      node_label: GKE's name for it, `cloud.google.com/gke-tpu-accelerator`.
      topologies: GKE's name for each slice's shape, by its number of chips.
      single_host: maximum chips of a slice on a single host; larger slices have 4 per host.
    """

    runtime: str
    cores: int
    node_label: str
    topologies: dict[int, str]
    single_host: int = 4


_FLAT = {1: "1x1", 4: "2x2", 8: "2x4", 16: "4x4", 32: "4x8", 64: "8x8", 128: "8x16", 256: "16x16"}
_CUBES = {
    **{4: "2x2x1", 8: "2x2x2", 16: "2x2x4", 32: "2x4x4", 64: "4x4x4", 128: "4x4x8"},
    **{256: "4x8x8", 512: "8x8x8", 1024: "8x8x16", 2048: "8x16x16"},
}
_V3 = {
    **{4: "2x2", 16: "4x4", 32: "4x8", 64: "8x8", 128: "8x16", 256: "16x16", 512: "16x32"},
    **{1024: "32x32"},
}
_HOSTS_CHIPS = 4

# Google's pages on TPU software versions, TPU configurations, and TPUs in GKE, as of 2026.
GENERATIONS = {
    "v3": Generation("tpu-ubuntu2204-base", 2, "tpu-v3-slice", _V3),
    "v4": Generation("tpu-ubuntu2204-base", 2, "tpu-v4-podslice", {**_CUBES, 4096: "16x16x16"}),
    "v5litepod": Generation("v2-alpha-tpuv5-lite", 1, "tpu-v5-lite-podslice", _FLAT, 8),
    "v5p": Generation("v2-alpha-tpuv5", 2, "tpu-v5p-slice", {**_CUBES, 4096: "16x16x16"}),
    "v6e": Generation("v2-alpha-tpuv6e", 1, "tpu-v6e-slice", _FLAT, 8),
}
_ALSO = {"v5e": "v5litepod", "v5lite": "v5litepod", "v6": "v6e"}


@dataclasses.dataclass(frozen=True)
class Slice:
    """A TPU slice.

    Attributes:
      generation: generation of its chips.
      name: the name under which Google rents it: `v5litepod-256`.
      chips: total number of chips.
    """

    generation: Generation
    name: str
    chips: int

    @property
    def topology(self) -> str:
        """GKE's name for its shape."""
        return self.generation.topologies[self.chips]

    @property
    def hosts(self) -> int:
        """Number of hosts in GKE; each is a pod."""
        return max(1, self.chips // self.chips_of_host)

    @property
    def chips_of_host(self) -> int:
        """Number of chips per host in GKE."""
        alone = self.chips <= self.generation.single_host
        return self.chips if alone else _HOSTS_CHIPS

    @property
    def node_label(self) -> str:
        """GKE's name for the type; a single host of the third generation has its own label."""
        alone = self.generation.node_label == "tpu-v3-slice" and self.hosts == 1
        return "tpu-v3-device" if alone else self.generation.node_label


def parse(text: str) -> Slice:
    """Returns the slice with the given name.

    Args:
      text: `v3-256`, `v4-8`, `v5litepod-16` or `v5e-16`, `v5p-128`, `v6e-64`.

    Raises:
      AcceleratorError: there is no slice with this name.
    """
    name, _, size = text.partition("-")
    name = _ALSO.get(name, name)
    generation = GENERATIONS.get(name)
    if generation is None or not re.fullmatch(r"[1-9][0-9]{0,4}", size):
        raise AcceleratorError(
            f"{text!r} is not an accelerator type; their names are like v3-8, v4-8, v5litepod-16, "
            "v5p-8 and v6e-8"
        )
    sizes = [chips * generation.cores for chips in generation.topologies]
    if int(size) not in sizes:
        raise AcceleratorError(
            f"{text!r}: slices of {name} have {', '.join(map(str, sorted(sizes)))} "
            f"{'cores' if generation.cores > 1 else 'chips'}"
        )
    return Slice(generation, f"{name}-{size}", int(size) // generation.cores)
