"""Networks in CIDR notation for --allow. IPv4-mapped IPv6 addresses count as IPv4.

Imports ipaddress only when needed, because that import is slow.
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
    """Parse comma-separated networks, or "none"; return canonical forms. Raises UsageError."""
    if text.strip() == NONE:
        return ()
    return tuple(str(_parse(part.strip())) for part in text.split(","))


class Networks:
    """A set of networks; `texts` is from `parse_networks`."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._networks = [_parse(text) for text in texts]

    def __contains__(self, host: str) -> bool:
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
            f"{text!r} is not a network; give one such as 10.0.0.0/8, 192.0.2.7 or 2001:db8::/32"
        ) from None
    # In 10.1.2.3/8 either the address or the prefix length is wrong.
    if "/" in text and network.prefixlen < network.max_prefixlen:
        single = ip_network(text.partition("/")[0])
        if single.network_address != network.network_address:
            raise errors.UsageError(
                f"{text!r} has address bits beyond its prefix; give {network} for the network,"
                f" or {single.network_address} for the one address"
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
    """Return the key for limits per client: an IPv4 address, or the /64 network of IPv6."""
    if ":" not in host:
        return host
    from ipaddress import IPv6Address

    address = IPv6Address(host.partition("%")[0])
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return address.packed[:8].hex()
