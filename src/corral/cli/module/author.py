"""`corral module new | build | test | dev | doctor | sign`: the verbs of module authors."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Final

import click

from corral.cli.api.session import ApiSession, api_command
from corral.cli.failure import CommandFailure, CommandRefused, WrongUsage, note, report
from corral.cli.module.files import build_source, check_sources_of, inspect, refusals
from corral.cli.module.nodes import WAIT_SECONDS, refuse_failed_nodes, show_outcome, wait_for_nodes
from corral.cli.module.views import MODULES, extension_items, extension_rows, module_status, needed_how
from corral.cli.terminal.output import output_option, plain, show_done, show_one, show_streamed
from corral.cli.terminal.values import size_text

if TYPE_CHECKING:
    from corral.domain.modules.manifest import Manifest, Requirement


_FIXTURES: Final = "corral.testing.module_fixtures"
_PYTEST_FILES: Final = ("pytest.ini", ".pytest.ini", "pytest.toml", "pyproject.toml", "tox.ini", "setup.cfg")
_LOOK_SECONDS: Final = 0.3
_SKIPPED: Final = frozenset({"dist", "__pycache__", "tests"})
_MAX_FILES: Final = 20_000

Seen = dict[str, tuple[int, int]]
"""Change time and size by path."""


@click.command("new")
@click.argument("id")
@click.option(
    "--host",
    type=click.Choice(["controller", "daemon", "both"]),
    default="controller",
    show_default=True,
    help="Where it runs: on the controller, on every node, or a part on each.",
)
@click.option("--into", metavar="DIR", help="Where to put it; else a directory named like the module.")
@output_option
def new(id: str, host: str, into: str | None, output: str) -> None:
    """Make the source of a new module. It has a manifest, a class, and a test that passes."""
    from corral.cli.module.scaffold import write_scaffold

    target = pathlib.Path(into).expanduser() if into else pathlib.Path(id)
    with refusals():
        written = write_scaffold(id, target, host=host)
    shown = {"id": id, "directory": str(target), "files": [str(path) for path in written]}
    show_done(output, shown, f"wrote {target}/; next: corral module test {target}")


@click.command("build")
@click.argument("source", default=".")
@click.option("--out", metavar="FILE", help="Else SOURCE/dist/ID-VERSION.cmod.")
@output_option
def build(source: str, out: str | None, output: str) -> None:
    """Build a module's archive. The same source gives the same bytes."""
    built = build_source(pathlib.Path(source).expanduser(), pathlib.Path(out).expanduser() if out else None)
    shown = {
        "id": built.manifest.id,
        "version": built.manifest.version,
        "file": str(built.path),
        "sha256": built.sha256,
    }
    show_done(output, shown, f"built {built.path} (sha256 {built.sha256[:12]})", name="file")


@click.command("test", context_settings={"ignore_unknown_options": True})
@click.argument("source", default=".")
@click.argument("pytest_args", nargs=-1, type=click.UNPROCESSED)
def test(source: str, pytest_args: tuple[str, ...]) -> None:
    """Run a module's tests with pytest. A real controller and daemon are at hand (fixture 'house')."""
    directory = pathlib.Path(source).expanduser()
    if not (directory / "tests").is_dir():
        raise WrongUsage(f"{directory} has no directory 'tests'", hint="'corral module new' makes one")
    if importlib.util.find_spec("pytest") is None:
        raise CommandRefused("pytest is not installed here", hint="pip install 'corral[testing]'")
    paths = [str(directory.resolve()), str((directory / "src").resolve())]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*paths, os.environ.get("PYTHONPATH", "")])}
    options = ["asyncio_mode=auto", "asyncio_default_fixture_loop_scope=function"]
    if not any((directory / name).exists() for name in _PYTEST_FILES):
        pytest_args = ("-c", os.devnull, *pytest_args)  # not that of a project it happens to lie in
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        _FIXTURES,
        "--rootdir=.",
        *(f"-o{each}" for each in options),
    ]
    ended = subprocess.run([*command, "tests", *pytest_args], cwd=directory, env=environment, check=False)
    if ended.returncode:
        raise CommandRefused(f"the tests of {directory} did not pass")


@click.command("doctor")
@click.argument("archive")
@output_option
def doctor(archive: str, output: str) -> None:
    """Check an archive as a host would, without running it."""
    path = pathlib.Path(archive).expanduser()
    facts = inspect(path)
    check_sources_of(path, facts)
    from corral.sdk import SDK_VERSION
    from corral.signing.sidecars import sidecar_beside

    manifest = facts.manifest
    sidecar = sidecar_beside(path)
    extensions = extension_items(manifest)
    rows = [
        ("Module", f"{manifest.id} {manifest.version}"),
        ("Hosts", plain([str(host) for host in manifest.hosts])),
        ("Built for SDK", f"{manifest.api} (this one is {SDK_VERSION})"),
        ("Provides", plain([f"{each.id} {each.version}" for each in manifest.capabilities.provides])),
        ("Requires", plain([_required(each) for each in manifest.capabilities.requires])),
        *extension_rows(extensions),
        ("Storage", _storage(manifest)),
        ("Files", str(len(facts.files))),
        ("Size", size_text(facts.size)),
        ("SHA-256", facts.sha256),
        ("Signature", f"{sidecar.kind} beside it, not checked here" if sidecar else "none beside it"),
    ]
    shown = {
        "id": manifest.id,
        "version": manifest.version,
        "sha256": facts.sha256,
        "size": facts.size,
        "hosts": [str(host) for host in manifest.hosts],
        "extensions": extensions,
        "files": [file.path for file in facts.files],
        "signature": sidecar.kind if sidecar else "",
    }
    _check_api(manifest.api, SDK_VERSION)
    show_one(output, shown, rows=rows)


def _required(each: Requirement) -> str:
    return f"{each.id} {each.version_range}" + needed_how(each.optional, each.from_)


def _storage(manifest: Manifest) -> str:
    part = manifest.storage
    kinds = (["documents"] if part.documents else []) + (["keys"] if part.key_value else [])
    if kinds and not any(host == "controller" for host in manifest.hosts):
        return f"{plain(kinds)}, but it has no part on the controller: there is none on nodes"
    return plain(kinds)


def _check_api(api: str, sdk: str) -> None:
    from corral.domain.versions import parse_range, parse_version

    if not parse_range(api).allows(parse_version(sdk)):
        raise CommandRefused(
            f"it was built for SDK {api}, and this is {sdk}",
            hint="change `api` in its manifest, or build it for this SDK",
            code="MODULE_INCOMPATIBLE",
        )


@click.command("sign")
@click.argument("archive", required=False)
@click.option("--key", metavar="FILE", help="PEM private key: ECDSA P-256, or RSA.")
@click.option("--new-key", metavar="NAME", help="First make a key: NAME.key and NAME.pub.")
@output_option
def sign(archive: str | None, key: str | None, new_key: str | None, output: str) -> None:
    """Sign an archive with a key; writes FILE.sig. Set CORRAL_KEY_PASSPHRASE for a key that is locked."""
    from corral.cli.module.files import make_key, sign_archive

    if new_key is not None:
        key = str(make_key(pathlib.Path(new_key).expanduser()))
        note(f"wrote {key} (keep it to yourself) and {new_key}.pub (give it to operators)")
    if archive is None and new_key is not None:
        show_done(output, {"key": key}, f"made {key}", name="key")
        return
    if archive is None or key is None:
        raise WrongUsage("give an archive and --key FILE")
    path = pathlib.Path(archive).expanduser()
    inspect(path)
    written = sign_archive(path, pathlib.Path(key).expanduser(), os.environ.get("CORRAL_KEY_PASSPHRASE"))
    show_done(output, {"file": str(written)}, f"wrote {written}", name="file")


@click.command("dev")
@click.argument("source", default=".")
@click.option("--once", is_flag=True, help="Build and install once, and return.")
@api_command
def dev(session: ApiSession, source: str, once: bool) -> None:
    """Watch a source directory and reload the module. It is built at every change, until Ctrl-C."""
    DevLoop(session, pathlib.Path(source).expanduser()).run(once=once)


class DevLoop:
    """Looks at the files three times a second: a module is small, and every file system can do that."""

    def __init__(self, session: ApiSession, source: pathlib.Path) -> None:
        self._session = session
        self._source = source

    def run(self, *, once: bool) -> None:
        seen = self._look()
        if once:
            self._reload()
            return
        self._try_reload()
        note(f"watching {self._source}; Ctrl-C ends")
        try:
            while True:
                time.sleep(_LOOK_SECONDS)
                now = self._look()
                if now != seen:
                    seen = now
                    self._try_reload()
        except KeyboardInterrupt:
            click.echo()

    def _try_reload(self) -> None:
        """A failed build or upload is printed; the next change is another try."""
        try:
            self._reload()
        except CommandFailure as failure:
            report(failure.message, hint=failure.hint)

    def _reload(self) -> None:
        from corral.cli.api.transfers import FormFile, send_form

        began = time.monotonic()
        built = build_source(self._source)
        found = send_form(
            self._session.client,
            MODULES,
            [FormFile(field="file", path=built.path)],
            what="uploading",
            params={"replace": "true", "allow_downgrade": "true"},
        )
        took = (time.monotonic() - began) * 1000
        line = f"{time.strftime('%H:%M:%S')} {module_status(found)}, {took:.0f} ms"
        found = wait_for_nodes(self._session, found, WAIT_SECONDS)
        show_streamed(self._session.output, found, lambda _: line)
        if self._session.output == "table":
            show_outcome(found)
        refuse_failed_nodes(found)

    def _look(self) -> Seen:
        seen: Seen = {}
        waiting = [self._source]
        while waiting and len(seen) < _MAX_FILES:
            try:
                entries = list(waiting.pop().iterdir())
            except OSError:
                continue  # removed under our eyes; the next look sees it
            for path in entries:
                if path.name.startswith(".") or path.name in _SKIPPED:
                    continue
                try:
                    facts = path.lstat()
                    is_directory = path.is_dir() and not path.is_symlink()
                except OSError:
                    continue
                if is_directory:
                    waiting.append(path)
                else:
                    seen[str(path)] = (facts.st_mtime_ns, facts.st_size)
        return seen
