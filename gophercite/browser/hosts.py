"""Hosts of addresses: what links show, and what is blocked."""

import functools
import urllib.parse
from collections.abc import Collection


@functools.lru_cache(10_000)
def host_of(url: str) -> str:
    """The host of an address in lower case, without its port; empty if it has none."""
    try:
        return (urllib.parse.urlsplit(url).hostname or "").rstrip(".").lower()
    except ValueError:  # such as half an IPv6 address
        return ""


def is_blocked(url: str, blocked: Collection[str]) -> bool:
    """Whether the address belongs to one of these hosts, or to a subdomain of one."""
    host = host_of(url)
    return any(host == each or host.endswith(f".{each}") for each in blocked)


def is_host(name: str) -> bool:
    """Whether this is a host in lower case, without scheme, port and path."""
    return bool(name) and host_of(f"//{name}") == name


def without_fragment(url: str) -> tuple[str, str]:
    """The address up to its first `#`, and the decoded fragment after it."""
    address, _, fragment = url.partition("#")
    return address, urllib.parse.unquote(fragment)
