"""gRPC options that both ends agree on: limits, keep-alive, names."""

from __future__ import annotations

from typing import Any, Final

CONTROL_LIMIT: Final = 4 * 1024 * 1024
"""The largest frame either side accepts."""

_KEEPALIVE_MS: Final = 10_000
_KEEPALIVE_TIMEOUT_MS: Final = 5_000
_SERVER_MINIMUM_MS: Final = 5_000

Options = list[tuple[str, Any]]


def server_options(
    *, connections: int = 0, handshake_seconds: float = 10.0, idle_seconds: float | None = None
) -> Options:
    """`connections` bounds their number (0: does not); a peer that takes longer than `handshake_seconds` to
    begin HTTP/2 is disconnected, and one without a call for `idle_seconds` receives a GOAWAY."""
    bounds: Options = [("grpc.server_handshake_timeout_ms", round(handshake_seconds * 1000))]
    if connections:
        bounds.append(("grpc.max_allowed_incoming_connections", connections))
    if idle_seconds is not None:
        bounds.append(("grpc.max_connection_idle_ms", round(idle_seconds * 1000)))
    return [
        *bounds,
        ("grpc.max_receive_message_length", CONTROL_LIMIT),
        ("grpc.max_send_message_length", CONTROL_LIMIT),
        ("grpc.keepalive_time_ms", _KEEPALIVE_MS),
        ("grpc.keepalive_timeout_ms", _KEEPALIVE_TIMEOUT_MS),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", _SERVER_MINIMUM_MS),
        ("grpc.http2.min_ping_interval_without_data_ms", _SERVER_MINIMUM_MS),
        ("grpc.http2.max_ping_strikes", 0),
        ("grpc.so_reuseport", 0),
        # One control stream and a few transfers: a daemon uses no more on one connection.
        ("grpc.max_concurrent_streams", 64),
    ]


def channel_options(server_name: str) -> Options:
    """`server_name` is the name required in the certificate, whatever address is dialled."""
    return [
        ("grpc.ssl_target_name_override", server_name),
        ("grpc.default_authority", server_name),
        ("grpc.max_receive_message_length", CONTROL_LIMIT),
        ("grpc.max_send_message_length", CONTROL_LIMIT),
        ("grpc.keepalive_time_ms", _KEEPALIVE_MS),
        ("grpc.keepalive_timeout_ms", _KEEPALIVE_TIMEOUT_MS),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        # Each channel has its own connection: bulk data must not queue before control frames.
        ("grpc.use_local_subchannel_pool", 1),
        # The link reconnects by its own clock and list of addresses.
        ("grpc.enable_retries", 0),
    ]
