"""The SDK's public surface, pinned: its names, and what a type checker says about modules."""

from __future__ import annotations

import inspect
import pathlib

from marked_errors import check_marks

import corral.sdk

ROOT = pathlib.Path(__file__).parents[2]
CASES = pathlib.Path(__file__).parent / "cases"

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
    check_marks(CASES, source=ROOT / "sdk/src", cache=scratch / "cache")
