"""Which addresses may connect: networks in CIDR notation, as text and as a question.

IPv4 addresses that arrive as IPv6 ones (::ffff:10.0.0.1) count as what they are. Must not know
sockets. The module behind it is imported only where somebody asks for networks.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from beanstalkd_py import errors

if TYPE_CHECKING:
    from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

    Network = IPv4Network | IPv6Network

_MAPPED_BITS = 96

NONE = "none"


def parse_networks(text: str) -> tuple[str, ...]:
    """Networks that are separated by commas, each in its usual form; "none" is none of them.

    Raises UsageError.
    """
    if text.strip() == NONE:
        return ()
    return tuple(str(_parse(part.strip())) for part in text.split(","))


class Networks:
    """Networks in the form that `parse_networks` gives them."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._networks = [_parse(text) for text in texts]

    def __contains__(self, host: str) -> bool:
        """Whether the address is in one of them."""
        address = _address(host)
        return any(address in network for network in self._networks)


def _address(host: str) -> IPv4Address | IPv6Address:
    from ipaddress import IPv6Address, ip_address

    address = ip_address(host)
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def _parse(text: str) -> Network:
    from ipaddress import ip_network

    try:
        network = ip_network(text, strict=False)
    except ValueError:
        raise errors.UsageError(
            f"{text!r} is no network; give one as 10.0.0.0/8, 192.0.2.7 or 2001:db8::/32"
        ) from None
    # Whoever writes 10.1.2.3/8 has one of both wrong; which one, only they know.
    if "/" in text and network.prefixlen < network.max_prefixlen:
        given = ip_network(text.partition("/")[0])
        if given.network_address != network.network_address:
            raise errors.UsageError(
                f"{text!r} has address bits beyond its prefix; give {network} for the network,"
                f" or {given.network_address} for the one address"
            )
    return _unmapped(network)


def _unmapped(network: Network) -> Network:
    from ipaddress import IPv4Network, IPv6Network

    if isinstance(network, IPv6Network) and network.prefixlen >= _MAPPED_BITS:
        mapped = network.network_address.ipv4_mapped
        if mapped is not None:
            return IPv4Network((mapped, network.prefixlen - _MAPPED_BITS))
    return network


def source_of(host: str) -> str:
    """What an address counts as where each client has a limit: of IPv6 its /64 network."""
    if ":" not in host:
        return host
    from ipaddress import IPv6Address

    address = IPv6Address(host.partition("%")[0])
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return address.packed[:8].hex()
