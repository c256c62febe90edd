"""The SDK's public surface, pinned: its names, and what a type checker says about modules."""

from __future__ import annotations

import inspect
import os
import pathlib
import re
import subprocess
import sys

import corral.sdk

ROOT = pathlib.Path(__file__).parents[2]
CASES = pathlib.Path(__file__).parent / "cases"
EXPECTED = re.compile(r"# E: ([a-z-]+)")
REPORTED = re.compile(r"^(.+?):(\d+): error: .*\[([a-z-]+)\]$")

NAMES = [
    "ABSENT",
    "BadRegistration",
    "Caller",
    "Capabilities",
    "CapabilityBinding",
    "CapabilityHandle",
    "CapabilityTypeError",
    "CapabilityUnavailable",
    "Collection",
    "CommandCall",
    "CommandParameter",
    "Commands",
    "ContextMisused",
    "Counter",
    "DaemonModule",
    "DocumentStorage",
    "Event",
    "EventBus",
    "ExitInfo",
    "F",
    "FileEntry",
    "Files",
    "Found",
    "Gauge",
    "Health",
    "Histogram",
    "Host",
    "HostError",
    "HostTimeout",
    "HttpAnswer",
    "HttpClient",
    "HttpError",
    "HttpRequestFailed",
    "INSTANCE_FILES",
    "Index",
    "InstanceFiles",
    "InstanceHandle",
    "InstanceSpec",
    "KeyValueStorage",
    "Manifest",
    "Metrics",
    "ModuleContext",
    "PlatformModule",
    "Processes",
    "QueryInvalid",
    "Refused",
    "Request",
    "ResourceMissing",
    "Resources",
    "Response",
    "Routes",
    "SDK_VERSION",
    "ScheduledTask",
    "Scheduler",
    "SdkError",
    "SideProcess",
    "StorageQuotaExceeded",
    "StorageUnavailable",
    "Stored",
    "Subscription",
    "Transaction",
]


def test_the_public_names_are_these():
    assert sorted(corral.sdk.__all__) == sorted(NAMES)


def test_every_public_class_is_documented_with_an_example():
    classes = [member for name in NAMES if inspect.isclass(member := getattr(corral.sdk, name))]
    assert len(classes) > 40
    assert [kind.__name__ for kind in classes if "```python" not in (kind.__doc__ or "")] == []


def test_mypy_finds_in_sample_modules_what_is_marked_and_nothing_else(scratch):
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir", scratch / "cache"]
    command += ["--namespace-packages", "--explicit-package-bases", "--no-error-summary"]
    ran = subprocess.run(
        [*command, *sorted(CASES.glob("*.py"))],
        env={**os.environ, "MYPYPATH": str(ROOT / "sdk/src")},
        cwd=CASES,
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )
    assert ran.returncode in (0, 1), ran.stdout + ran.stderr
    found = [REPORTED.match(line) for line in ran.stdout.splitlines() if ": error: " in line]
    assert all(found), ran.stdout
    reported = {(pathlib.Path(hit[1]).name, int(hit[2]), hit[3]) for hit in found}
    assert reported == _expected(), ran.stdout


def _expected() -> set[tuple[str, int, str]]:
    return {
        (case.name, number, mark[1])
        for case in CASES.glob("*.py")
        for number, line in enumerate(case.read_text().splitlines(), 1)
        if (mark := EXPECTED.search(line))
    }
