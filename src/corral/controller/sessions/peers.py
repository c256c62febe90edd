"""The address of a gRPC peer, as audit and rate limits want it."""

from __future__ import annotations

from urllib.parse import unquote


def peer_address(peer: str) -> str:
    """`ipv4:1.2.3.4:5678` or `ipv6:%5B::1%5D:5678` as the bare address: one host is one caller."""
    family, _, rest = peer.partition(":")
    if family not in ("ipv4", "ipv6"):
        return peer
    return unquote(rest).rsplit(":", 1)[0].strip("[]")
