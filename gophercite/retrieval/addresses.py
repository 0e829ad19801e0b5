"""Decides which network addresses may be reached, and connects only to those.

Pages name hosts, and a host name may lead anywhere: to a service on this machine, to a router, to
a cloud's metadata service with its keys. Each name is resolved once, all its addresses are checked,
and the connection is made to a checked address. The name server is never asked a second time, since
its second answer could be a different one (DNS rebinding).
"""

import asyncio
import ipaddress
import socket
from collections.abc import Iterable

import httpcore

# Seconds for an address of a host that has others: all of one IP version may lead nowhere. It is
# long enough for a second packet where the first one is lost.
_PATIENCE = 2.0

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

# Ranges whose last 32 bits are an IPv4 address: NAT64 (RFC 6052) and IPv4-compatible addresses.
# Python's own library knows the ranges of 6to4 and Teredo.
_EMBEDDING = (ipaddress.IPv6Network("64:ff9b::/96"), ipaddress.IPv6Network("::/96"))

# Special, though Python calls them global: local NAT64, deprecated site-local addresses, the 6to4
# relay, a cloud's metadata service in public space, and the IETF's protocol assignments.
_SPECIAL: tuple[Network, ...] = (
    ipaddress.IPv6Network("64:ff9b:1::/48"),
    ipaddress.IPv6Network("fec0::/10"),
    ipaddress.IPv4Network("192.88.99.0/24"),
    ipaddress.IPv4Network("168.63.129.16/32"),
    ipaddress.IPv4Network("192.0.0.0/24"),
)


class AddressError(OSError):
    """A host can't be resolved, or leads to an address that may not be reached."""


class AddressPolicy:
    """Says which addresses may be reached: public ones, and those in allowed networks.

    Args:
      allowed: further networks that may be reached, such as `127.0.0.0/8` for tests.

    Raises:
      ValueError: when one of them is not a network.
    """

    def __init__(self, allowed: Iterable[str] = ()) -> None:
        self._allowed = tuple(ipaddress.ip_network(network) for network in allowed)

    def admits(self, address: Address) -> bool:
        """Whether this address may be reached."""
        if any(address in network for network in self._allowed):
            return True
        if any(address in network for network in _SPECIAL):
            return False
        inner = _embedded(address)
        if inner is not None:
            return self.admits(inner)
        return address.is_global and not address.is_multicast and not address.is_reserved

    async def resolve(self, host: str, port: int) -> list[str]:
        """Returns the addresses of a host, after checking all of them.

        Raises:
          AddressError: when the host has no address, or any of them may not be reached.
        """
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            raise AddressError(f"the host {host!r} is not known") from None
        addresses = list(
            dict.fromkeys(str(sockaddr[0]).partition("%")[0] for *_, sockaddr in found)
        )
        for address in addresses:
            if not self.admits(ipaddress.ip_address(address)):
                raise AddressError(
                    f"the host {host!r} leads to {address}, which is not a public address; allow "
                    "its network if you trust it"
                )
        return addresses


class CheckedBackend(httpcore.AsyncNetworkBackend):
    """Opens connections, for httpcore, to addresses that the policy admits."""

    def __init__(self, policy: AddressPolicy) -> None:
        self._policy = policy
        self._backend = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Resolves, checks and connects; the certificate is still checked against the host name."""
        try:
            async with asyncio.timeout(timeout):
                addresses = await self._policy.resolve(host, port)
        except TimeoutError:
            raise httpcore.ConnectTimeout(f"the host {host!r} was not resolved in time") from None
        except AddressError as error:
            raise httpcore.ConnectError(str(error)) from error
        if len(addresses) > 1:
            short = _PATIENCE if timeout is None else min(timeout, _PATIENCE)
            for address in addresses:
                try:
                    return await self._backend.connect_tcp(
                        address, port, short, local_address, socket_options
                    )
                except (httpcore.ConnectError, httpcore.ConnectTimeout):
                    continue
        return await self._backend.connect_tcp(
            addresses[0], port, timeout, local_address, socket_options
        )

    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Refuses: no page is served from a Unix socket of this machine."""
        raise httpcore.ConnectError("connections to sockets of this machine are not allowed")

    async def sleep(self, seconds: float) -> None:
        """Sleeps."""
        await self._backend.sleep(seconds)


def _embedded(address: Address) -> Address | None:
    """The IPv4 address that traffic to an IPv6 address ends up at."""
    if isinstance(address, ipaddress.IPv4Address):
        return None
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    if any(address in network for network in _EMBEDDING):
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return None
