"""Compatibility report: what installing an archive would do here, and its problems: the answer to a dry run,
and the checks that a real install makes first."""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterator, Sequence

import msgspec

from corral.domain.modules.capability_graph import Provided, applies, check_graph, registry_of, unmet
from corral.domain.modules.manifest import Manifest, ModuleHost, Provision, Requirement, Source
from corral.domain.modules.phases import ModuleIntent, ModulePhase
from corral.domain.modules.records import PackageRecord, SignatureFacts
from corral.domain.versions import parse_range, parse_version
from corral.errors import Code, CorralError, Rejected
from corral.modules.archive.archive_reader import ArchiveFacts
from corral.modules.manifest.settings import check_settings


class Outcome(enum.StrEnum):
    INSTALL = "install"
    UPGRADE = "upgrade"
    REPLACE = "replace"
    DOWNGRADE = "downgrade"
    UPDATE_SIGNATURE = "update_signature"
    """The same bytes with another signature."""
    NOTHING = "nothing"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A problem that prevents the install."""

    code: str
    message: str
    hint: str = ""
    field: str = ""


class RequirementState(enum.StrEnum):
    BOUND = "bound"
    WAITING = "waiting"
    """A package provides it, but is not active."""
    MISSING = "missing"
    MISMATCH = "mismatch"


class RequirementView(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    version_range: str
    optional: bool
    state: RequirementState
    provider: str = ""
    provider_version: str = ""


class CompatibilityReport(msgspec.Struct, frozen=True, kw_only=True):
    ok: bool
    id: str
    version: str
    sha256: str
    size: int
    hosts: tuple[ModuleHost, ...]
    current_version: str = ""
    action: Outcome
    problems: tuple[Finding, ...] = ()
    warnings: tuple[str, ...] = ()
    requires: tuple[RequirementView, ...] = ()
    signature: SignatureFacts | None = None


def report(
    facts: ArchiveFacts,
    installed: Sequence[PackageRecord],
    *,
    sdk_version: str,
    signature: SignatureFacts | None = None,
    signature_sha256: str = "",
    replace: bool = False,
    allow_downgrade: bool = False,
    built_in: Collection[str] = (),
) -> CompatibilityReport:
    """Report on a valid archive with a verified signature against what is installed. `built_in` are the
    capabilities of the host itself, `signature_sha256` is the digest of the sidecar that came with the
    archive.

    Problems are ordered by importance: interface, version, graph, settings. Blocking for as long as the
    settings take to check.
    """
    manifest = facts.manifest
    current = next((record for record in installed if record.id == manifest.id), None)
    case = _Case(
        manifest=manifest,
        installed=installed,
        current=current,
        action=outcome(facts, current, signature_sha256),
        built_in=built_in,
        replace=replace,
        allow_downgrade=allow_downgrade,
    )
    unchanged = case.action in (Outcome.NOTHING, Outcome.UPDATE_SIGNATURE)
    problems = [] if unchanged else list(_problems(case, sdk_version))
    requires = tuple(_views(case))
    return CompatibilityReport(
        ok=not problems,
        id=manifest.id,
        version=manifest.version,
        sha256=facts.sha256,
        size=facts.size,
        hosts=manifest.hosts,
        current_version=current.version if current else "",
        action=case.action,
        problems=tuple(problems),
        warnings=tuple(_warnings(case, requires, signature)),
        requires=requires,
        signature=signature,
    )


def refusal(found: CompatibilityReport) -> Rejected | None:
    """The first problem as the error to raise; None when there is none."""
    if not found.problems:
        return None
    first = found.problems[0]
    return Rejected(Code[first.code], first.message, hint=first.hint or None, field=first.field or None)


def outcome(facts: ArchiveFacts, current: PackageRecord | None, signature_sha256: str = "") -> Outcome:
    """The kind of change, by version and digests only: the options do not change it. Without a sidecar the
    present one stays."""
    if current is None:
        return Outcome.INSTALL
    if current.sha256 == facts.sha256:
        stored = current.signature.blob if current.signature else ""
        return Outcome.UPDATE_SIGNATURE if signature_sha256 not in ("", stored) else Outcome.NOTHING
    here, new = parse_version(current.version), parse_version(facts.manifest.version)
    if new == here:
        return Outcome.REPLACE
    return Outcome.UPGRADE if new > here else Outcome.DOWNGRADE


class _Case(msgspec.Struct, frozen=True, kw_only=True):
    manifest: Manifest
    installed: Sequence[PackageRecord]
    current: PackageRecord | None
    action: Outcome
    built_in: Collection[str]
    replace: bool
    allow_downgrade: bool


def _problems(case: _Case, sdk_version: str) -> Iterator[Finding]:
    manifest = case.manifest
    if not parse_range(manifest.api).allows(sdk_version):
        yield Finding(
            code=Code.MODULE_INCOMPATIBLE.name,
            message=f"module {manifest.id} is built for corral.sdk {manifest.api}, this host has {sdk_version}",
            hint="install a version of the module that fits, or another version of Corral",
            field="api",
        )
    if case.current is not None:
        yield from _version_problems(case, case.current.version)
    try:
        check_graph(manifest, case.installed, built_in=case.built_in)
    except Rejected as refused:
        yield _finding(refused)
    if case.current is not None and case.current.settings:
        try:
            check_settings(manifest.config, case.current.settings)
        except Rejected as refused:
            yield _finding(refused)


def _version_problems(case: _Case, here: str) -> Iterator[Finding]:
    id, version = case.manifest.id, case.manifest.version
    if case.action is Outcome.REPLACE and not case.replace:
        yield Finding(
            code=Code.MODULE_VERSION_CONFLICT.name,
            message=f"module {id} {here} is installed with other content",
            hint="raise the version, or install it with --replace",
            field="version",
        )
    if case.action is Outcome.DOWNGRADE and not case.allow_downgrade:
        yield Finding(
            code=Code.MODULE_VERSION_CONFLICT.name,
            message=f"module {id} is installed as {here}, which is newer than {version}",
            hint="install a newer version, or this one with --allow-downgrade",
            field="version",
        )


def _finding(error: CorralError) -> Finding:
    return Finding(
        code=error.code.name, message=error.message, hint=error.hint or "", field=error.field or ""
    )


def _views(case: _Case) -> Iterator[RequirementView]:
    """Each requirement with the package that comes closest to meeting it."""
    order = list(RequirementState)
    for requirement in case.manifest.capabilities.requires:
        if requirement.id in case.built_in:
            yield _view(requirement, RequirementState.BOUND)
        else:
            best = min(_offers(requirement, case), key=lambda offer: order.index(offer.state), default=None)
            yield best or _view(requirement, RequirementState.MISSING)


def _offers(requirement: Requirement, case: _Case) -> Iterator[RequirementView]:
    manifest = case.manifest
    asked = {
        registry_of(requirement, host) for host in manifest.hosts if applies(requirement, manifest, host)
    }
    for record in case.installed:
        if record.id == manifest.id or not asked.intersection(record.manifest.hosts):
            continue
        for provision in _named(requirement, record.manifest):
            yield _offer(requirement, provision, record.id, record.phase is ModulePhase.ACTIVE)
    if requirement.from_ is Source.CONTROLLER:  # the controller part of the same module counts
        for provision in _named(requirement, manifest):
            yield _offer(requirement, provision, manifest.id, True)


def _named(requirement: Requirement, manifest: Manifest) -> list[Provision]:
    return [each for each in manifest.capabilities.provides if each.id == requirement.id]


def _offer(requirement: Requirement, provision: Provision, provider: str, active: bool) -> RequirementView:
    state = RequirementState.BOUND if active else RequirementState.WAITING
    if unmet(requirement, Provided(provision.version, provider)) is not None:
        state = RequirementState.MISMATCH
    return _view(requirement, state, provider, provision.version)


def _view(
    requirement: Requirement, state: RequirementState, provider: str = "", version: str = ""
) -> RequirementView:
    return RequirementView(
        id=requirement.id,
        version_range=requirement.version_range,
        optional=requirement.optional,
        state=state,
        provider=provider,
        provider_version=version,
    )


def _warnings(
    case: _Case, requires: Sequence[RequirementView], signature: SignatureFacts | None
) -> Iterator[str]:
    manifest = case.manifest
    if signature is None:
        yield "it is not signed: whether somebody changed it on its way cannot be told"
    elif not (signature.identity or signature.key_sha256):
        yield "its signature is not verified: this controller has no key for it (modules.signing)"
    elif signature.legacy:
        yield "it is signed the old way (.sig); sign it with a cosign bundle"
    if (manifest.storage.documents or manifest.storage.key_value) and manifest.hosts == (ModuleHost.DAEMON,):
        yield "it asks for storage, which there is on the controller only"
    for view in requires:
        if view.state is not RequirementState.BOUND and not view.optional:
            yield f"it will wait for {view.id} {view.version_range}: {_why(view)}"
    yield from _deprecations(case, requires)
    yield from _effects(case)
    if case.current is None or not case.current.settings:
        try:
            check_settings(manifest.config, {})
        except Rejected as refused:
            yield f"it needs settings: {refused.message}"


def _why(view: RequirementView) -> str:
    if view.state is RequirementState.MISMATCH:
        return f"{view.provider} provides {view.provider_version}"
    return f"{view.provider} is not active" if view.provider else "nothing provides it"


def _deprecations(case: _Case, requires: Sequence[RequirementView]) -> Iterator[str]:
    used = {(view.provider, view.id) for view in requires}
    for record in case.installed:
        for each in record.manifest.capabilities.provides:
            if each.deprecated_since and (record.id, each.id) in used:
                until = f", removed in {each.removed_in}" if each.removed_in else ""
                yield f"{each.id} of {record.id} is deprecated since {each.deprecated_since}{until}"


def _effects(case: _Case) -> Iterator[str]:
    """Effects on other packages."""
    mine = {each.id: each.version for each in case.manifest.capabilities.provides}
    before = case.current.manifest.capabilities.provides if case.current else ()
    gone = {each.id for each in before} - mine.keys()
    for record in case.installed:
        if record.id == case.manifest.id or record.intent is not ModuleIntent.ACTIVE:
            continue
        for requirement in record.manifest.capabilities.requires:
            offer = mine.get(requirement.id)
            if requirement.id in gone:
                yield f"{record.id} uses {requirement.id}, which this version does not provide any more"
            elif offer is not None and unmet(requirement, Provided(offer, case.manifest.id)):
                yield f"{record.id} needs {requirement.id} {requirement.version_range}, this provides {offer}"
