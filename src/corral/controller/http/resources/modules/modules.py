"""Modules: list, show, install, upgrade, uninstall, and what is left of them. Verbs: `module_verbs`."""

from __future__ import annotations

import contextlib
import datetime as dt
import pathlib
from collections.abc import AsyncIterator, Mapping
from typing import Annotated, Any, Final, Literal

import msgspec

from corral.controller.http.messages.call import ApiCall, NoQuery, Query, RequestBody
from corral.controller.http.messages.list_pages import Ids, SearchText, has_text, named_ids
from corral.controller.http.messages.paging import Page, PageQuery, page_of
from corral.controller.http.messages.request_decoder import BodyDecoder
from corral.controller.http.messages.responses import encode
from corral.controller.http.messages.uploads import ReceivedForm, SmallPart
from corral.controller.http.pipeline.route_table import Act, FormUpload, Read, Route, path_id
from corral.controller.http.resources.modules.module_schemas import (
    MODULES,
    ONE,
    ExaminedModule,
    InstalledModule,
    ModuleShape,
    examined_shape,
    installed_shape,
    listed_shape,
    module_shape,
)
from corral.controller.modules.installer import InstallOptions, InstallOutcome
from corral.controller.modules.module_service import Modules
from corral.controller.sessions.live_nodes import LiveNodes
from corral.controller.state.cluster_state import ClusterState, StoredRecord
from corral.controller.state.ledger import Mutation
from corral.domain.modules.manifest import ModuleHost
from corral.domain.modules.phases import ModuleIntent, ModulePhase
from corral.domain.modules.records import PackageRecord
from corral.domain.modules.verbs import VERBS, Verb
from corral.domain.permissions import Permission
from corral.errors import Code, Rejected
from corral.modules.process import Leak
from corral.signing import SIDECAR_LIMIT, Sidecar

SETTINGS_LIMIT: Final = 256 * 1024
SIGNATURE: Final = "signature"
SETTINGS: Final = "settings"
_SIDECARS: Final = {"sig": "module.sig", "cosign-bundle": "module.bundle"}
"""Names by which `sidecar_of` knows the kinds of signatures."""
_PLATFORM: Final = f"{MODULES}/platform"
"""Where modules of a platform were uploaded and listed before: the same as without it."""

Settings = Annotated[dict[str, Any], msgspec.Meta(max_length=1000)]
_SETTINGS: Final = BodyDecoder(Settings)


class ModuleQuery(PageQuery, frozen=True, kw_only=True):
    ids: Ids | None = None
    q: SearchText | None = None
    phase: ModulePhase | None = None
    intent: ModuleIntent | None = None
    host: ModuleHost | None = None


class InstallQuery(Query, frozen=True, kw_only=True):
    activate: Annotated[bool, msgspec.Meta(description="False: install and hold it.")] = True
    replace: Annotated[bool, msgspec.Meta(description="Also other content under the same version.")] = False
    allow_downgrade: Annotated[bool, msgspec.Meta(description="Also a lower version.")] = False
    rollback: Annotated[
        bool, msgspec.Meta(description="False: leave a new version that fails where it is.")
    ] = True
    dry_run: Annotated[bool, msgspec.Meta(description="Examine it and do nothing.")] = False


class LeakShape(msgspec.Struct, frozen=True, kw_only=True):
    """A process that did not end by itself. `killed` false: it is there still."""

    module: str
    pid: int
    since: dt.datetime
    killed: bool
    threads: list[str]
    tasks: list[str]
    children: list[str]


class Leaks(msgspec.Struct, frozen=True, kw_only=True):
    items: list[LeakShape]
    next: str | None = None


def the_module(state: ClusterState, path: Mapping[str, str]) -> StoredRecord[PackageRecord]:
    return state.modules.require(path["id"])


async def list_modules(
    state: ClusterState, modules: Modules, nodes: LiveNodes, call: ApiCall[None, ModuleQuery]
) -> Page[ModuleShape]:
    query = call.query

    def accepts(record: PackageRecord) -> bool:
        return (
            query.phase in (None, record.phase)
            and query.intent in (None, record.intent)
            and (query.host is None or query.host in record.manifest.hosts)
            and (query.q is None or has_text((record.id, record.manifest.title), query.q))
        )

    return page_of(
        state.modules,
        query,
        accepts=accepts,
        shape=lambda stored: listed_shape(state, modules, nodes, call, stored),
        among=named_ids(state.modules, query.ids) if query.ids is not None else None,
    )


async def get_module(
    state: ClusterState, modules: Modules, nodes: LiveNodes, call: ApiCall[None, NoQuery]
) -> ModuleShape:
    await modules.look_at_nodes()
    return module_shape(state, modules, nodes, call, the_module(state, call.path))


class ExaminedReference(RequestBody, frozen=True, kw_only=True):
    """An archive that the caller had examined (`dry_run`), with the signature that came with it."""

    sha256: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}(?!\\n)$")]
    settings: Settings | None = None


@contextlib.asynccontextmanager
async def recall_archive(
    modules: Modules, call: ApiCall[ExaminedReference, InstallQuery]
) -> AsyncIterator[ReceivedForm]:
    """The form of an archive that was examined. NOT_FOUND, BODY_TOO_LARGE."""
    parts: dict[str, SmallPart] = {}
    if call.body.settings is not None:
        content = encode(call.body.settings)
        if len(content) > SETTINGS_LIMIT:
            raise Rejected(
                Code.BODY_TOO_LARGE, f"'settings' is larger than {SETTINGS_LIMIT} bytes", field=SETTINGS
            )
        parts[SETTINGS] = SmallPart(filename="", content=content)
    async with modules.examined.opened(call.caller.limit_key, call.body.sha256) as kept:
        if kept.sidecar is not None:
            parts[SIGNATURE] = SmallPart(filename=_SIDECARS[kept.sidecar.kind], content=kept.sidecar.content)
        yield ReceivedForm(file=kept.path, filename="", size=kept.size, sha256=kept.sha256, parts=parts)


async def install_module(
    state: ClusterState,
    modules: Modules,
    nodes: LiveNodes,
    call: ApiCall[None, InstallQuery],
    form: ReceivedForm,
) -> Mutation:
    sidecar = sidecar_of(form.parts.get(SIGNATURE))
    query = call.query
    options = InstallOptions(
        activate=query.activate,
        replace=query.replace,
        allow_downgrade=query.allow_downgrade,
        rollback=query.rollback,
        settings=_SETTINGS.decode(form.parts[SETTINGS].content) if SETTINGS in form.parts else None,
    )
    owner = call.caller.limit_key
    if query.dry_run:
        report = await modules.examine(form.file, sidecar=sidecar, options=options, expect=form.sha256)
        until = await modules.examined.keep(
            owner, form.file, sha256=form.sha256, size=form.size, sidecar=sidecar
        )
        body = examined_shape(report, until)
        return Mutation(action="modules.examine", subject=report.id, steps=(), body=body)
    answer = await modules.install(
        form.file, sidecar=sidecar, options=options, actor=call.caller.actor, expect=form.sha256
    )
    await modules.examined.forget(owner, form.sha256)
    stored = state.modules.find(answer.record.id) or StoredRecord(0, answer.record)
    return Mutation(
        action="modules.install",
        subject=answer.record.id,
        steps=(),
        body=installed_shape(state, modules, nodes, call, answer, stored),
        status=201 if answer.outcome is InstallOutcome.INSTALLED else 200,
    )


def sidecar_of(part: SmallPart | None) -> Sidecar | None:
    """The signature that came with an archive, its kind by its name, or else by its content."""
    if part is None:
        return None
    name = part.filename.lower()
    if not part.content.strip():
        raise Rejected(Code.INVALID_FIELD, "the signature is empty", field=SIGNATURE)
    kind: Literal["sig", "cosign-bundle"]
    if name.endswith(".sig"):
        kind = "sig"
    elif name.endswith((".bundle", ".json", ".sigstore")):
        kind = "cosign-bundle"
    else:
        kind = "cosign-bundle" if part.content.lstrip().startswith(b"{") else "sig"
    return Sidecar(kind=kind, content=part.content)


async def uninstall_module(modules: Modules, call: ApiCall[None, NoQuery]) -> Mutation:
    record = await modules.act(call.path["id"], Verb.UNINSTALL, actor=call.caller.actor)
    return Mutation(action="modules.uninstall", subject=record.id, steps=(), status=204)


async def drop_storage(modules: Modules, call: ApiCall[None, NoQuery]) -> Mutation:
    id = call.path["id"]
    await modules.drop_storage(id, actor=call.caller.actor)
    return Mutation(action="modules.drop_storage", subject=id, steps=(), status=204)


async def list_leaked(modules: Modules, call: ApiCall[None, NoQuery]) -> Leaks:
    del call
    return _leaks(modules.leaked())


async def force_cleanup(modules: Modules, call: ApiCall[None, NoQuery]) -> Mutation:
    del call
    leaks = _leaks(await modules.force_cleanup())
    return Mutation(
        action="modules.force_cleanup",
        subject="modules",
        steps=(),
        body=leaks,
        after={"modules": sorted({leak.module for leak in leaks.items})},
    )


def _leaks(leaks: list[Leak]) -> Leaks:
    return Leaks(
        items=[
            LeakShape(
                module=leak.module_id,
                pid=leak.pid,
                since=leak.since,
                killed=leak.killed,
                threads=list(leak.lingering.threads) if leak.lingering else [],
                tasks=list(leak.lingering.tasks) if leak.lingering else [],
                children=list(leak.lingering.children) if leak.lingering else [],
            )
            for leak in leaks
        ]
    )


def archive_limit(modules: Modules) -> int:
    return modules.max_archive_bytes


def spool_directory(modules: Modules) -> pathlib.Path:
    return modules.uploads


def _listing(path: str) -> Read:
    return Read(
        method="GET",
        path=path,
        permission=Permission.MODULES_READ,
        summary="List modules",
        query=ModuleQuery,
        response=Page[ModuleShape],
        handler=list_modules,
    )


def _installing(path: str) -> FormUpload:
    return FormUpload(
        method="POST",
        path=path,
        permission=Permission.MODULES_MANAGE,
        summary="Install a module, or upgrade it: a form with `file`, and `signature` where there is one; or the digest of "
        "an archive that was examined",
        query=InstallQuery,
        body=ExaminedReference,
        recall=recall_archive,
        response=InstalledModule | ExaminedModule,
        handler=install_module,
        action="modules.install",
        subject=lambda _: "modules",
        limit=archive_limit,
        directory=spool_directory,
        small={SIGNATURE: SIDECAR_LIMIT, SETTINGS: SETTINGS_LIMIT},
    )


def _leaked(path: str) -> Read:
    return Read(
        method="GET",
        path=path,
        permission=Permission.MODULES_READ,
        summary="List processes of modules that did not end by themselves",
        response=Leaks,
        handler=list_leaked,
    )


def _cleaning(path: str) -> Act:
    return Act(
        method="POST",
        path=path,
        permission=Permission.MODULES_MANAGE,
        summary="Kill what is left of modules that are gone",
        response=Leaks,
        handler=force_cleanup,
        action="modules.force_cleanup",
        subject=lambda _: "modules",
    )


def _dropping(method: str, path: str) -> Act:
    return Act(
        method=method,
        path=path,
        permission=Permission.MODULES_MANAGE,
        summary="Delete the data of a module that is not installed any more",
        status=204,
        handler=drop_storage,
        action="modules.drop_storage",
        subject=path_id,
    )


ROUTES: Final[tuple[Route, ...]] = (
    _listing(MODULES),
    _installing(MODULES),
    _leaked(f"{MODULES}/leaked"),
    _cleaning(f"{MODULES}/force-cleanup"),
    _listing(_PLATFORM),
    _installing(f"{_PLATFORM}/upload"),
    _leaked(f"{_PLATFORM}/leaked-classloaders"),
    _cleaning(f"{_PLATFORM}/force-cleanup"),
    _dropping("DELETE", f"{MODULES}/storage/{{id}}"),
    _dropping("POST", f"{ONE}/storage/drop"),
    Read(
        method="GET",
        path=ONE,
        permission=Permission.MODULES_READ,
        summary="Show a module",
        response=ModuleShape,
        handler=get_module,
    ),
    Act(
        method="DELETE",
        path=ONE,
        permission=Permission.MODULES_MANAGE,
        summary=VERBS[Verb.UNINSTALL].summary,
        status=204,
        handler=uninstall_module,
        action="modules.uninstall",
        subject=path_id,
    ),
)
