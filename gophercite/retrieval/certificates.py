"""The certificates by which servers are trusted, which take longer to read than a short answer."""

import functools
import os
import ssl

import httpx


def certificates() -> ssl.SSLContext:
    """Returns the environment's, or else the usual ones; they are read once."""
    return _read(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))


@functools.cache
def _read(file: str | None, folder: str | None) -> ssl.SSLContext:
    """Reads them from the file or folder, which httpx finds in the environment itself."""
    return httpx.create_ssl_context()
