"""Functions on IP addresses, which are strings. What is no address is NULL."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ceql.functions.entry import TEXT, Function
from ceql.schema import Kind

_OCTET = r"(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_IPV4 = rf"^{_OCTET}\.{_OCTET}\.{_OCTET}\.{_OCTET}$"


@lru_cache(maxsize=4096)
def _address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(text)
    except ValueError:
        return None


@lru_cache(maxsize=4096)
def _network(text: str) -> IPv4Network | IPv6Network | None:
    try:
        return ip_network(text, strict=False)
    except ValueError:
        return None


def _is_in(ip: str, *nets: str) -> bool | None:
    address, networks = _address(ip), [_network(net) for net in nets]
    if address is None:
        return None
    if any(network is not None and address in network for network in networks):
        return True
    return None if None in networks else False


def _are_in(ips: Any, *nets: Any) -> Any:
    """Answer for a column: IPv4 addresses are compared as numbers, all others one by one."""
    networks = [_network(net) if isinstance(net, str) else None for net in nets]
    if not isinstance(ips, pa.Array) or None in networks:
        return None
    found = np.zeros(len(ips), np.bool_)
    is_known = np.zeros(len(ips), np.bool_)
    is_ipv4 = np.asarray(pc.match_substring_regex(ips, _IPV4).fill_null(fill_value=False))
    plain = ips.filter(pa.array(is_ipv4))
    if len(plain):
        octets = pc.list_flatten(pc.split_pattern(plain, ".")).cast(pa.int64())
        numbers = np.asarray(octets).reshape(-1, 4) @ np.array([1 << 24, 1 << 16, 1 << 8, 1])
        is_in = np.zeros(len(numbers), np.bool_)
        for network in networks:
            if isinstance(network, IPv4Network):
                is_in |= (numbers & int(network.netmask)) == int(network.network_address)
        found[is_ipv4], is_known[is_ipv4] = is_in, True
    for row in np.flatnonzero(~is_ipv4 & np.asarray(ips.is_valid())).tolist():
        answer = _is_in(ips[row].as_py(), *nets)
        found[row], is_known[row] = bool(answer), answer is not None
    return pa.array(found, mask=~is_known)


def _wrong_network(_: Sequence[Kind], number: int, value: Any) -> str | None:
    if number == 0 or value is None or _network(value) is not None:
        return None
    return "write a network like '10.0.0.0/8' or '2001:db8::/32'"


ADDRESSES = (
    Function(
        "CIDR_MATCH",
        (TEXT, TEXT),
        Kind.BOOLEAN,
        of=_is_in,
        arrow=_are_in,
        repeats=True,
        check=_wrong_network,
    ),
)
