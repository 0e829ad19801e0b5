"""A PostgreSQL server of the tests' own, where one is installed."""

import contextlib
import glob
import os
import pathlib
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator

import pytest

_SERVER_USER = "postgres"  # whom it runs as when the tests are root's: it refuses to be root


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def postgresql() -> Iterator[str]:
    """A server that nobody else uses; yields the URL of its data base, or skips the test."""
    programs = sorted(glob.glob("/usr/lib/postgresql/*/bin")) or [
        os.path.dirname(found) for found in [shutil.which("initdb")] if found
    ]
    if not programs:
        pytest.skip("no PostgreSQL server is installed here")
    user = None
    if os.geteuid() == 0:
        try:
            user = pwd.getpwnam(_SERVER_USER)
        except KeyError:
            pytest.skip("PostgreSQL does not run as root, and there is no user for it")
    folder = pathlib.Path(tempfile.mkdtemp(prefix="gophercite-pg-"))
    if user is not None:
        os.chown(folder, user.pw_uid, user.pw_gid)
    port, bin = free_port(), programs[-1]

    def run(*command: str) -> None:
        subprocess.run(
            command,
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            user=user.pw_uid if user else None,
            group=user.pw_gid if user else None,
        )

    data = str(folder / "data")
    try:
        run(f"{bin}/initdb", "-D", data, "-U", "tester", "-A", "trust", "-E", "UTF8", "--no-sync")
        options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={folder}"
        run(f"{bin}/pg_ctl", "-D", data, "-w", "-l", str(folder / "log"), "-o", options, "start")
        try:
            yield f"postgresql+pg8000://tester@127.0.0.1:{port}/postgres"
        finally:
            run(f"{bin}/pg_ctl", "-D", data, "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
