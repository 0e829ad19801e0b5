"""Processes find each other in each environment: real ones on loopback, and what is refused."""

import contextlib
import dataclasses
import http.server
import json
import os
import pathlib
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence

import pytest

from gophercite.cli import processes
from gophercite.cli.process_places import DisagreementError, JoinError, Place, find, first_node
from tests.long_forms import LONG

SCRIPT = pathlib.Path(__file__).with_name("join_processes.py")
LAUNCH = pathlib.Path(__file__).parents[2] / "launch"
PATIENCE = 300  # seconds
NOWHERE = {"GCE_METADATA_IP": "127.0.0.1:9"}  # nothing listens there
SLURM = {
    "SLURM_JOB_ID": "4107",
    "SLURM_NTASKS": "2",
    "SLURM_LOCALID": "0",
    "SLURM_STEP_NODELIST": "localhost",
    "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
}
GKE = {"TPU_WORKER_HOSTNAMES": "localhost,localhost"}
SLICES = {
    "TPU_WORKER_HOSTNAMES": "a-0,a-1",
    "TPU_WORKER_ID": "1",
    "MEGASCALE_NUM_SLICES": "4",
    "MEGASCALE_SLICE_ID": "2",
    "MEGASCALE_COORDINATOR_ADDRESS": "run-slice-0-0.run:8080",
}
JOB = {"JAX_NUM_PROCESSES": "2", "JAX_COORDINATOR_ADDRESS": "localhost"}


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        return int(free.getsockname()[1])


@contextlib.contextmanager
def metadata_server(attributes: Mapping[str, str]) -> Iterator[str]:
    """What answers on a TPU VM as Google's metadata server does; yields its address."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            value = attributes.get(self.path.rpartition("/")[2])
            known = value is not None and self.headers["Metadata-Flavor"] == "Google"
            self.send_response(200 if known else 404)
            self.end_headers()
            self.wfile.write((value or "").encode() if known else b"<html>404")

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def together(
    folder: pathlib.Path,
    flags: Sequence[Sequence[str]],
    environments: Sequence[Mapping[str, str]],
) -> list[list[int]]:
    """Starts two processes and returns what each found."""
    files = [folder / f"{number}.json" for number in range(len(flags))]
    started = [
        subprocess.Popen(
            [sys.executable, str(SCRIPT), *own, f"--found={file}"],
            env=os.environ | {"PYTHONPATH": str(LAUNCH), "JAX_NUM_CPU_DEVICES": "2"} | environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for own, file, environment in zip(flags, files, environments, strict=True)
    ]
    said = [process.communicate(timeout=PATIENCE) for process in started]
    for process, (_, errors) in zip(started, said, strict=True):
        assert process.returncode == 0, errors
    return [json.loads(file.read_text()) for file in files]


@contextlib.contextmanager
def two(where: str, port: str) -> Iterator[list[dict[str, str]]]:
    """The environments of two processes of one run on this machine; yields them."""
    own: list[dict[str, str]] = [{}, {}]
    with contextlib.ExitStack() as servers:
        if where == "slurm":
            own = [{**SLURM, "SLURM_PROCID": str(number)} for number in (0, 1)]
        elif where == "gke":
            own = [{**GKE, "TPU_WORKER_ID": str(number)} for number in (0, 1)]
        elif where == "job":
            own = [{**JOB, "JOB_COMPLETION_INDEX": str(number)} for number in (0, 1)]
        elif where == "tpu_vm":
            # Two slices of one host each; the metadata say so, and no variable does.
            for number in (0, 1):
                megascale = f"MEGASCALE_NUM_SLICES: '2'\nMEGASCALE_SLICE_ID: '{number}'\n"
                server = metadata_server(
                    {
                        "agent-worker-number": "0",
                        "worker-network-endpoints": f"unknown:unknown:127.0.0.{number + 1}",
                        "tpu-env": f"ZONE: 'z'\n{megascale}"
                        "MEGASCALE_COORDINATOR_ADDRESS: 'localhost:8080'\n",
                    }
                )
                own[number] = {"GCE_METADATA_IP": servers.enter_context(server)}
        yield [{"JAX_COORDINATOR_PORT": port, **each} for each in own]


@pytest.mark.parametrize(
    ("where", "place"),
    [
        ("slurm", Place("Slurm", "localhost:4107", 2, 0)),
        ("gke", Place("GKE", "localhost:4107", 2, 0)),
        ("job", Place("JAX_NUM_PROCESSES", "localhost:4107", 2, 0)),
        ("tpu_vm", Place("the TPU VM", "localhost:4107", 2, 0)),
    ],
)
def test_two_processes_have_one_coordinator_and_their_own_numbers(where: str, place: Place) -> None:
    with two(where, "4107") as environments:
        found = [find(each) for each in environments]
    assert found == [place, dataclasses.replace(place, index=1)]


# What is done with a place is the same for each environment.
@pytest.mark.parametrize(
    "where",
    ["flags", "tpu_vm", *(pytest.param(each, marks=LONG) for each in ("slurm", "gke", "job"))],
)
def test_two_processes_meet(where: str, tmp_path: pathlib.Path) -> None:
    port = str(free_port())
    # One would take from it what the other compiles anew, in another order of collectives.
    cache = {"JAX_COMPILATION_CACHE_DIR": str(tmp_path / "cache")}
    cache |= {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    flags = [["--distributed"]] * 2
    if where == "flags":
        said = [f"--coordinator_address=localhost:{port}", "--num_processes=2"]
        flags = [[*said, f"--process_id={number}"] for number in (0, 1)]
    with two(where, port) as environments:
        found = together(tmp_path, flags, [{**cache, **each} for each in environments])
    assert found == [[0, 2, 2, 3], [1, 2, 2, 3]]
    assert not (tmp_path / "cache").exists(), "on CPUs, processes share no compiled programs"


def test_others_that_never_come_are_waited_for_aloud_and_an_error_in_bounded_time() -> None:
    flags = [f"--coordinator_address=localhost:{free_port()}", "--num_processes=2"]
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *flags, "--process_id=0", "--join_timeout=1"],
        env=os.environ | {"PYTHONPATH": str(LAUNCH)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 69, done.stderr
    waits, error = done.stderr.splitlines()
    assert waits.startswith("join: process 0 of 2 waits for the others at localhost:")
    assert waits.endswith("for up to 1 s (--join_timeout)")
    assert error.startswith("join: process 0 of 2: not all processes have joined at localhost:")
    assert "within 1 s" in error


def test_of_others_that_came_nothing_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    with processes._in_time(1, Place("flags", "localhost:1", 2, 0), "join"):
        pass
    time.sleep(0.3)  # longer than it waits in silence
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("environment", "place"),
    [
        (
            {**SLURM, "SLURM_PROCID": "1", "SLURM_STEP_NODELIST": "tpu[07-09,12],b"},
            Place("Slurm", f"tpu07:{65535 - 4095 + 11}", 2, 1),
        ),
        (
            {**SLURM, "SLURM_PROCID": "1", "SLURM_LOCALID": "1", "SLURM_STEP_TASKS_PER_NODE": "2"},
            Place("Slurm", f"localhost:{65535 - 4095 + 11}", 2, 1, (1,)),
        ),
        (SLICES, Place("GKE", "run-slice-0-0.run:8482", 8, 5)),
        ({**JOB, "JAX_PROCESS_ID": "0"}, Place("JAX_NUM_PROCESSES", "localhost:55527", 2, 0)),
        (
            {**JOB, "JOB_COMPLETION_INDEX": "1", "JAX_COORDINATOR_ADDRESS": "a.b:77"},
            Place("JAX_NUM_PROCESSES", "a.b:77", 2, 1),
        ),
    ],
)
def test_places(environment: Mapping[str, str], place: Place) -> None:
    assert find(environment) == place
    assert find(environment, "other:1").coordinator == "other:1"
    assert find(environment, None, place.count, place.index) == place


def test_a_tpu_vm_of_one_slice_and_a_machine_that_is_none() -> None:
    of_pod = {"agent-worker-number": "2", "worker-network-endpoints": "t-0,t-1,t-2"}
    with metadata_server(of_pod) as server:
        place = find({"GCE_METADATA_IP": server})
    assert place == Place("the TPU VM", "t-0:8482", 3, 2)
    with (
        metadata_server({}) as server,
        pytest.raises(DisagreementError, match="can't find the other processes"),
    ):
        find({"GCE_METADATA_IP": server})


@pytest.mark.parametrize(
    ("environment", "flags", "message"),
    [
        (NOWHERE, (), "can't find the other processes"),
        (NOWHERE, ("a:1", 2), "can't find the other processes"),
        ({}, ("a", 2, 0), "--coordinator_address is 'a': must be HOST:PORT"),
        (
            {**SLURM, "SLURM_PROCID": "1"},
            (None, 4),
            "--num_processes is 4, and by Slurm this is process 1 of 2: leave the flag out",
        ),
        ({**SLURM, "SLURM_PROCID": "1"}, (None, 2, 0), "--process_id is 0, and by Slurm"),
        ({**SLURM, "SLURM_PROCID": "2"}, (), "by Slurm this is process 2 of 2: the number must be"),
        ({**SLURM, "SLURM_PROCID": "x"}, (), "SLURM_PROCID is 'x': must be a whole number"),
        (
            {**SLURM, **GKE, "SLURM_PROCID": "1", "TPU_WORKER_ID": "0"},
            (),
            "by Slurm this is process 1 of 2, and by GKE this is process 0 of 2: unset one",
        ),
        (GKE, (), "TPU_WORKER_ID is not set"),
        ({**GKE, "TPU_WORKER_ID": "2"}, (), "GKE: there is no worker 2 in a slice with 2 hosts"),
        (
            {**SLICES, "MEGASCALE_SLICE_ID": "4"},
            (),
            "MEGASCALE_SLICE_ID is 4, but there are 4 slices",
        ),
        (
            {**SLICES, "MEGASCALE_COORDINATOR_ADDRESS": ""},
            (),
            "there are 4 slices, and MEGASCALE_COORDINATOR_ADDRESS is not set",
        ),
        ({"JAX_NUM_PROCESSES": "2"}, (), "JOB_COMPLETION_INDEX is not set"),
        ({"JAX_NUM_PROCESSES": "2", "JAX_PROCESS_ID": "0"}, (), "the address of process 0, is not"),
    ],
)
def test_what_disagrees_is_refused(
    environment: Mapping[str, str], flags: tuple[object, ...], message: str
) -> None:
    with pytest.raises(DisagreementError) as refused:
        find(environment, *flags)  # type: ignore[arg-type]
    assert message in str(refused.value)


def test_a_metadata_server_that_stops_answering_is_no_other_environment() -> None:
    """It has said that this is a TPU VM's worker: to train alone there would be wrong."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer_once() -> None:
            connection, _ = listening.accept()
            connection.recv(4096)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n0")
            connection.close()
            listening.accept()[0].close()

        threading.Thread(target=answer_once, daemon=True).start()
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        with pytest.raises(JoinError, match="metadata server does not respond"):
            find({"GCE_METADATA_IP": address})


@pytest.mark.parametrize(
    ("nodes", "first"),
    [
        ("node001", "node001"),
        ("node001,host2", "node001"),
        ("node[001-0015],host2", "node001"),
        ("node[007,009-015]-ib,host2", "node007-ib"),
    ],
)
def test_the_first_of_a_list_of_nodes(nodes: str, first: str) -> None:
    assert first_node(nodes) == first
    with pytest.raises(DisagreementError, match="not a list of nodes"):
        first_node("")
