"""The types of values a configuration key may have, each with its check.

A check takes the decoded value and returns the one to use, or raises `ValueError` (or a `Rejected`) with the
reason; the loader adds where the value was set.
"""

from __future__ import annotations

import ipaddress
import pathlib
from collections.abc import Callable
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

from msgspec import Meta

from corral.domain import ids
from corral.domain.node_claims import check_labels
from corral.errors import Rejected, nearest
from corral.system.addresses import parse_address, parse_host

Check = Callable[[Any], Any]

LOG_LEVELS: Final = ("TRACE", "DEBUG", "INFO", "WARN", "ERROR")
LOG_FORMATS: Final = ("human", "json")
TLS_MODES: Final = ("off", "files", "cluster")
_DAY: Final = 86_400


def _checked(check: Check) -> Meta:
    return Meta(extra={"check": check})


def _path(value: pathlib.Path) -> pathlib.Path:
    return value.expanduser().absolute()


def _optional_path(value: str) -> str:
    return str(pathlib.Path(value).expanduser().absolute()) if value else ""


def _listen(value: str) -> str:
    return str(parse_address(value, any_port=True))


def _optional_listen(value: str) -> str:
    return _listen(value) if value else ""


def _optional_address(value: str) -> str:
    return str(parse_address(value)) if value else ""


def _optional_host(value: str) -> str:
    return parse_host(value) if value else ""


def _addresses(values: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(str(parse_address(value)) for value in values))


def _origins(values: tuple[str, ...]) -> tuple[str, ...]:
    for value in values:
        parts = urlsplit(value)
        if parts.scheme not in ("http", "https") or not parts.netloc or value.rstrip("/") != value:
            raise ValueError(f"{value!r} is not an origin; write it as https://panel.example.org")
        if parts.path or parts.query or parts.fragment or "*" in value or "@" in parts.netloc:
            raise ValueError(f"{value!r} is not one origin; list scheme, host and port of each")
    return tuple(dict.fromkeys(map(_as_browsers_write, values)))


def _optional_origin(value: str) -> str:
    return _origins((value,))[0] if value else ""


def _as_browsers_write(origin: str) -> str:
    """In small letters, and without the port that its scheme has anyway."""
    origin = origin.lower()
    return origin.removesuffix(":443" if origin.startswith("https:") else ":80")


def _hosts(values: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(parse_host(value).lower() for value in values))


def _networks(values: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(str(ipaddress.ip_network(value)) for value in values)


def _proxies(values: tuple[str, ...]) -> tuple[str, ...]:
    for value in values:
        if ipaddress.ip_network(value).prefixlen == 0:
            raise ValueError(
                f"{value!r} is every address; list the proxies alone, or anybody can claim any address"
            )
    return _networks(values)


def _store_url(value: str) -> str:
    if value == "sqlite" or urlsplit(value).scheme in ("postgresql", "postgres"):
        return value
    raise ValueError(f"{value.split(':', 1)[0]!r} is not a store; use sqlite or postgresql://…")


def _choice(choices: tuple[str, ...], fold: Callable[[str], str]) -> Check:
    def check(value: str) -> str:
        if fold(value) in choices:
            return fold(value)
        guess = nearest(fold(value), choices)
        meant = f"did you mean {guess}? " if guess else ""
        raise ValueError(f"{value!r} is not one of them; {meant}choose among {', '.join(choices)}")

    return check


def _optional_node_id(value: str) -> str:
    return ids.node_id(value) if value else ""


def _labels(value: dict[str, str]) -> dict[str, str]:
    try:
        check_labels(value)
    except Rejected as refused:
        raise ValueError(str(refused)) from refused
    return value


Directory = Annotated[pathlib.Path, _checked(_path)]
OptionalPath = Annotated[str, _checked(_optional_path)]
Listen = Annotated[str, _checked(_listen)]
OptionalListen = Annotated[str, _checked(_optional_listen)]
OptionalAddress = Annotated[str, _checked(_optional_address)]
OptionalHost = Annotated[str, _checked(_optional_host)]
Addresses = Annotated[tuple[str, ...], _checked(_addresses)]
Origins = Annotated[tuple[str, ...], _checked(_origins)]
OptionalOrigin = Annotated[str, _checked(_optional_origin)]
Hosts = Annotated[tuple[str, ...], _checked(_hosts)]
Networks = Annotated[tuple[str, ...], _checked(_networks)]
Proxies = Annotated[tuple[str, ...], _checked(_proxies)]
StoreUrl = Annotated[str, _checked(_store_url)]
LogLevel = Annotated[str, _checked(_choice(LOG_LEVELS, str.upper))]
LogFormat = Annotated[str, _checked(_choice(LOG_FORMATS, str.lower))]
TlsMode = Annotated[str, _checked(_choice(TLS_MODES, str.lower))]
OptionalNodeId = Annotated[str, _checked(_optional_node_id)]
Labels = Annotated[dict[str, str], _checked(_labels)]
Seconds = Annotated[float, Meta(gt=0, le=_DAY)]
Days = Annotated[float, Meta(gt=0, le=3650)]
Count = Annotated[int, Meta(ge=1, le=10_000_000)]
Limit = Annotated[int, Meta(ge=0, le=10_000_000)]
"""0: none."""
Bytes = Annotated[int, Meta(ge=1024, le=2**40)]
