"""Parts of a configuration that controller and daemon share: the base of all sections, and the sections of both."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from corral.errors import Code, Rejected
from corral.system import config_values as kind


def described(description: str) -> Meta:
    return Meta(description=description)


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A group of keys; frozen, so that a running process never sees half a change."""


class LogSection(Section, frozen=True, kw_only=True):
    level: Annotated[kind.LogLevel, described("TRACE, DEBUG, INFO, WARN or ERROR.")] = "INFO"
    format: Annotated[kind.LogFormat, described("What stderr gets: human or json.")] = "human"


class ShutdownSection(Section, frozen=True, kw_only=True):
    budget_seconds: Annotated[kind.Seconds, described("How long an orderly end may take in all.")] = 10


class RekorSection(Section, frozen=True, kw_only=True):
    policy: Annotated[
        str, described("require-set: a bundle must carry a signed log entry; disabled: it need not.")
    ] = "require-set"
    public_key: Annotated[kind.OptionalPath, described("PEM file of the transparency log's public key.")] = ""


class SigningSection(Section, frozen=True, kw_only=True):
    required: Annotated[bool, described("Refuse modules without a good signature.")] = False
    mode: Annotated[str, described("cosign-bundle, or keyed.")] = "cosign-bundle"
    trust_root: Annotated[
        kind.OptionalPath,
        described("PEM certificates, PEM public keys, or a Sigstore trusted_root.json."),
    ] = ""
    identities: Annotated[
        tuple[str, ...],
        described("Accepted signers: NAME, or NAME issuer=URL, as in their certificates; empty: any."),
    ] = ()
    allow_legacy_sig: Annotated[
        bool, described("cosign-bundle mode: also accept a `.sig`, with a warning.")
    ] = True
    rekor: RekorSection = RekorSection()


class ActivationSection(Section, frozen=True, kw_only=True):
    wait_timeout_seconds: Annotated[
        int, Meta(ge=0, le=86_400), described("How long a module may wait for capabilities; 0: for ever.")
    ] = 0


class ModuleHostSection(Section, frozen=True, kw_only=True):
    """Settings of the module engine, on either host."""

    enabled: Annotated[
        bool,
        described("Whether modules run here at all; false with `--no-modules`. Everything else goes on."),
    ] = True
    memory_mb: Annotated[int, Meta(ge=32, le=1_048_576), described("Memory of a module that names none.")] = (
        256
    )
    max_processes: Annotated[
        int, Meta(ge=1, le=100_000), described("Processes and threads of a module that names none.")
    ] = 64
    run_as: Annotated[
        str,
        Meta(max_length=64),
        described("User of module processes, when the host is root; empty: its own."),
    ] = ""
    max_archive_bytes: Annotated[kind.Bytes, described("Largest module archive.")] = 1_073_741_824
    load_timeout_seconds: Annotated[kind.Seconds, described("How long import and construction may take.")] = (
        15
    )
    leak_grace_seconds: Annotated[kind.Seconds, described("How long an unloaded module may take to end.")] = (
        10
    )
    health_check_seconds: Annotated[
        float,
        Meta(gt=0, le=3600),
        described(
            "How often a running module is asked for its health; three times late in a row, it is FAILED."
        ),
    ] = 30
    deaths_before_failed: Annotated[
        int, Meta(ge=0, le=100), described("Deaths of its process within ten minutes that are mended.")
    ] = 3
    events_per_second: Annotated[
        int, Meta(ge=1, le=100_000), described("Events that one module may publish; faster ones wait.")
    ] = 200
    activation: ActivationSection = ActivationSection()
    signing: SigningSection = SigningSection()


def contradiction(field: str, message: str, hint: str) -> Rejected:
    return Rejected(Code.INVALID_CONFIG, message, hint=hint, field=field)
