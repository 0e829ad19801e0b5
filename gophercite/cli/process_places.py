"""Finds a process's place among those of its run: from flags, Slurm, Kubernetes or a TPU VM.

JAX finds some of this by itself. It is read here for three reasons: contradictions are refused by
name instead of hanging until a timeout, a single task on a node keeps all its devices under Slurm
(JAX takes one of them), and every way of finding the place can be tested without a TPU.
"""

import dataclasses
import re
from collections.abc import Mapping

TPU_PORT = 8482  # of the coordinator, as in JAX on TPUs
JOB_PORT = 55527  # as in JAX under Kubernetes
_METADATA_SERVER = "metadata.google.internal"
_METADATA_TIMEOUT = 10.0  # seconds


class JoinError(RuntimeError):
    """The processes of a run did not find each other; the message is one line."""


class DisagreementError(JoinError):
    """Sources for the number of processes contradict each other, or are missing."""


@dataclasses.dataclass(frozen=True)
class Place:
    """A process's place in its run.

    Attributes:
      source: where this comes from, for messages.
      coordinator: HOST:PORT of process 0.
      count: number of processes in the run.
      index: index of this process, from 0.
      local_devices: devices of the host that belong to this process; None means all of them.
    """

    source: str
    coordinator: str
    count: int
    index: int
    local_devices: tuple[int, ...] | None = None


def find(
    environment: Mapping[str, str],
    coordinator: str | None = None,
    count: int | None = None,
    index: int | None = None,
) -> Place:
    """Finds this process's place.

    Args:
      environment: environment variables.
      coordinator: from a flag; takes precedence over the environment.
      count: from a flag; the environment must not contradict it.
      index: likewise.

    Raises:
      DisagreementError: two sources disagree, a variable makes no sense, or there is no source.
      JoinError: a TPU VM's metadata server doesn't answer.
    """
    if coordinator is not None and not re.fullmatch(r"\S+:\d{1,5}", coordinator):
        raise DisagreementError(f"--coordinator_address is {coordinator!r}: must be HOST:PORT")
    found = [
        place
        for reader in (_slurm, _tpu_pod, _indexed_job)
        if (place := reader(environment, coordinator))
    ]
    for another in found[1:]:
        if (another.count, another.index) != (found[0].count, found[0].index):
            raise DisagreementError(f"{_says(found[0])}, and {_says(another)}: unset one of them")
    complete = None not in (coordinator, count, index)
    if not found and not complete:
        found = [place for place in [_tpu_vm(environment, coordinator)] if place]
    for place in found[:1]:
        for flag, given, said in (
            ("--num_processes", count, place.count),
            ("--process_id", index, place.index),
        ):
            if given not in (None, said):
                raise DisagreementError(
                    f"{flag} is {given}, and {_says(place)}: leave the flag out"
                )
        return place
    if coordinator is None or count is None or index is None:
        raise DisagreementError(
            "can't find the other processes: this is not a TPU VM, and neither GKE nor Slurm is "
            "here. Add --coordinator_address, --num_processes and --process_id"
        )
    return Place("flags", coordinator, count, index)


def _slurm(environment: Mapping[str, str], coordinator: str | None) -> Place | None:
    """Reads what `srun` tells each task; a bare script of `sbatch` is not a task and has no
    step."""
    if not {"SLURM_JOB_ID", "SLURM_PROCID", "SLURM_STEP_NODELIST"} <= environment.keys():
        return None
    count, index = _number(environment, "SLURM_NTASKS"), _number(environment, "SLURM_PROCID")
    # "4(x2),1": two nodes with four tasks each, and one with one.
    tasks = environment.get("SLURM_STEP_TASKS_PER_NODE") or environment.get("SLURM_TASKS_PER_NODE")
    alone = re.fullmatch(r"1(\(x\d+\))?", tasks or "1") is not None
    local = None if alone else (_number(environment, "SLURM_LOCALID"),)
    if coordinator is None:
        # Each run has its own port, because several may share a node: by job, in the last 4096.
        own = 65535 - 4095 + _number(environment, "SLURM_JOB_ID") % 4096
        coordinator = f"{first_node(environment['SLURM_STEP_NODELIST'])}:{_port(environment, own)}"
    return _checked(Place("Slurm", coordinator, count, index, local))


def first_node(nodes: str) -> str:
    """The first node in Slurm's list: `a` of `a,b`, `tpu01` of `tpu[01-04,9],b`."""
    head = re.match(r"([^\[,]*)(?:\[([^\],-]*)[^\]]*\])?([^,\[]*)", nodes.strip())
    name = "".join(part or "" for part in head.groups()) if head else ""
    if not name:
        raise DisagreementError(f"not a list of nodes: {nodes!r} (SLURM_STEP_NODELIST)")
    return name


def _tpu_pod(environment: Mapping[str, str], coordinator: str | None) -> Place | None:
    """Reads what GKE tells each pod with TPUs; with several slices, each is one job of a JobSet."""
    hosts = environment.get("TPU_PROCESS_ADDRESSES") or environment.get("TPU_WORKER_HOSTNAMES")
    if not hosts:
        return None
    in_slice = [host.strip() for host in hosts.split(",")]
    worker = _number(environment, "TPU_WORKER_ID")
    return _of_slices(environment, "GKE", in_slice, worker, coordinator)


def _of_slices(
    environment: Mapping[str, str],
    source: str,
    in_slice: list[str],
    worker: int,
    coordinator: str | None,
) -> Place:
    """The place of a slice's worker, among one or several slices (their number in MEGASCALE_…)."""
    if not 0 <= worker < len(in_slice):
        raise DisagreementError(
            f"{source}: there is no worker {worker} in a slice with {len(in_slice)} hosts "
            f"({in_slice[0]} …)"
        )
    slices = _number(environment, "MEGASCALE_NUM_SLICES", 1)
    this = _number(environment, "MEGASCALE_SLICE_ID", 0)
    if not 0 <= this < max(slices, 1):
        raise DisagreementError(
            f"{source}: MEGASCALE_SLICE_ID is {this}, but there are {slices} slices"
        )
    if coordinator is None:
        first = environment.get("MEGASCALE_COORDINATOR_ADDRESS") or in_slice[0]
        if slices > 1 and not environment.get("MEGASCALE_COORDINATOR_ADDRESS"):
            raise DisagreementError(
                f"{source}: there are {slices} slices, and MEGASCALE_COORDINATOR_ADDRESS is not set"
            )
        coordinator = f"{first.partition(':')[0]}:{_port(environment, TPU_PORT)}"
    index = this * len(in_slice) + worker
    return _checked(Place(source, coordinator, slices * len(in_slice), index))


def _indexed_job(environment: Mapping[str, str], coordinator: str | None) -> Place | None:
    """An indexed Kubernetes Job without TPUs; its manifest gives the count and the coordinator.

    Kubernetes sets JOB_COMPLETION_INDEX; elsewhere JAX_PROCESS_ID can be used instead.
    """
    if "JAX_NUM_PROCESSES" not in environment:
        return None
    count = _number(environment, "JAX_NUM_PROCESSES")
    in_job = "JAX_PROCESS_ID" if "JAX_PROCESS_ID" in environment else "JOB_COMPLETION_INDEX"
    index = _number(environment, in_job)
    if coordinator is None:
        address = environment.get("JAX_COORDINATOR_ADDRESS", "")
        if not address:
            raise DisagreementError(
                "JAX_NUM_PROCESSES is set, but JAX_COORDINATOR_ADDRESS, the address of process "
                "0, is not"
            )
        host, _, port = address.partition(":")
        coordinator = f"{host}:{port or _port(environment, JOB_PORT)}"
    return _checked(Place("JAX_NUM_PROCESSES", coordinator, count, index))


def _tpu_vm(environment: Mapping[str, str], coordinator: str | None) -> Place | None:
    """Reads a TPU VM's metadata server; None if there is no such server."""
    server = environment.get("GCE_METADATA_IP", _METADATA_SERVER)
    try:
        worker = _metadata(server, "agent-worker-number")
    except OSError:  # no such host: this machine is not Google's
        return None
    if worker is None:
        return None
    try:
        endpoints = _metadata(server, "worker-network-endpoints") or ""
        settings = _metadata(server, "tpu-env") or ""
    except OSError as error:
        raise JoinError(f"the TPU VM's metadata server does not respond: {error}") from error
    # A worker is a host name or, in an older form, NAME:ID:ADDRESS.
    hosts = [each.strip().split(":")[-1] for each in endpoints.split(",")]
    attributes = dict(re.findall(r"^\s*(\w+)\s*:\s*'?([^'\n]*?)'?\s*$", settings, re.MULTILINE))
    slices = {name: value for name, value in attributes.items() if name.startswith("MEGASCALE_")}
    values = {**slices, **environment, "agent-worker-number": worker}
    index = _number(values, "agent-worker-number")
    return _of_slices(values, "the TPU VM", hosts, index, coordinator)


def _metadata(server: str, name: str) -> str | None:
    """An attribute of this machine; None if the machine has no such attribute.

    Raises:
      OSError: there is no such server, or it doesn't respond.
    """
    import http.client  # only TPU VMs need it

    connection = http.client.HTTPConnection(server, timeout=_METADATA_TIMEOUT)
    try:
        path = f"/computeMetadata/v1/instance/attributes/{name}"
        connection.request("GET", path, headers={"Metadata-Flavor": "Google"})
        answer = connection.getresponse()
        text = answer.read().decode(errors="replace").strip()
    except http.client.HTTPException as error:
        raise OSError(f"its response is not HTTP ({error!r})") from error
    finally:
        connection.close()
    return text if answer.status == 200 else None


def _checked(place: Place) -> Place:
    """Refuses an index that is not below the count."""
    if place.count < 1 or not 0 <= place.index < place.count:
        raise DisagreementError(f"{_says(place)}: the number must be from 0 to {place.count - 1}")
    return place


def _port(environment: Mapping[str, str], otherwise: int) -> int:
    return _number(environment, "JAX_COORDINATOR_PORT", otherwise)


def _number(environment: Mapping[str, str], name: str, otherwise: int | None = None) -> int:
    text = environment.get(name)
    if text is None and otherwise is not None:
        return otherwise
    if text is None or not re.fullmatch(r"\d{1,9}", text):
        shown = "not set" if text is None else repr(text)
        raise DisagreementError(f"{name} is {shown}: must be a whole number, at least 0")
    return int(text)


def _says(place: Place) -> str:
    return f"by {place.source} this is process {place.index} of {place.count}"
