"""Which server a route has: its kind decides, once."""

from __future__ import annotations

from typing import Protocol

from corral.controller.http.admission import Admission
from corral.controller.http.api_context import Gate, Setting
from corral.controller.http.mutation_servers import ActServer, IntakeServer, OnceServer, TermEndServer
from corral.controller.http.read_servers import AssetServer, ProbeServer, ReadServer, ReportServer
from corral.controller.http.request import Request
from corral.controller.http.responses import Answer
from corral.controller.http.route_servers.changes import BuildServer, MutateServer, UploadServer
from corral.controller.http.route_servers.streams import (
    DownloadServer,
    RelayServer,
    SocketServer,
    StreamServer,
)
from corral.controller.http.route_table import (
    Act,
    Asset,
    Build,
    Download,
    Intake,
    Mutate,
    Once,
    Probe,
    Read,
    Relay,
    Report,
    Route,
    Socket,
    Stream,
    Upload,
)
from corral.errors import Bug


class RouteServer(Protocol):
    """Serves one route."""

    async def answer(self, request: Request) -> Answer | None:
        """The answer; None when it was sent in pieces. Every refusal is raised."""


def server_of(route: Route, *, setting: Setting, gate: Gate) -> RouteServer:
    admission = Admission(route, setting=setting, gate=gate)
    match route:
        case Probe():
            return ProbeServer(route, admission)
        case Read():
            return ReadServer(route, admission)
        case Asset():
            return AssetServer(route, admission)
        case Report():
            return ReportServer(route, admission)
        case Stream():
            return StreamServer(route, admission)
        case Download():
            return DownloadServer(route, admission)
        case Socket():
            return SocketServer(route, admission)
        case Relay():
            return RelayServer(admission)
        case Mutate():
            return MutateServer(route, admission)
        case Build():
            return BuildServer(route, admission)
        case Upload():
            return UploadServer(route, admission)
        case Act(ends_term=True):
            return TermEndServer(route, admission)
        case Act():
            return ActServer(route, admission)
        case Once():
            return OnceServer(route, admission)
        case Intake():
            return IntakeServer(route, admission)
        case _:
            raise Bug(f"{route.name} is of a kind that has no server")
