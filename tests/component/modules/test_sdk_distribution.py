"""The SDK as authors install it: alone, with msgspec, and with nothing else of ours."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import sys
import zipfile

import msgspec
import pytest

from corral.sdk import SDK_VERSION

ROOT = pathlib.Path(__file__).parents[3]


@pytest.fixture
def wheel(scratch) -> pathlib.Path:
    """Built from a copy: a build leaves files beside its sources."""
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "build")
    shutil.copytree(ROOT / "sdk", scratch / "sdk", symlinks=False, ignore=ignored)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check"]
    subprocess.run(
        [*command, "--no-build-isolation", "--no-deps", "--no-index", "-w", scratch / "out", scratch / "sdk"],
        check=True,
        timeout=110,
    )
    (built,) = (scratch / "out").glob("*.whl")
    return built


@pytest.mark.system
def test_the_wheel_holds_the_sdk_and_nothing_else_and_works_alone(wheel, scratch):
    assert wheel.name == f"corral_sdk-{SDK_VERSION}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = archive.read(next(name for name in names if name.endswith("METADATA"))).decode()
    outside = [name for name in names if not name.startswith(("corral/sdk/", "corral_sdk-"))]
    assert outside == []
    assert {"corral/sdk/__init__.py", "corral/sdk/py.typed", "corral/sdk/runner/child.py"} <= set(names)
    assert [line for line in metadata.splitlines() if line.startswith("Requires-Dist")] == [
        "Requires-Dist: msgspec>=0.19"
    ]

    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index"]
    subprocess.run([*command, "--no-deps", "--target", scratch / "site", wheel], check=True, timeout=60)
    (scratch / "site" / "msgspec").symlink_to(pathlib.Path(msgspec.__file__).parent)
    script = """
import sys
sys.path.append(sys.argv[1])
import corral.sdk, importlib.util
import corral.sdk.runner.child
assert corral.sdk.__file__.startswith(sys.argv[1]), corral.sdk.__file__
assert not hasattr(corral, "__file__") or corral.__file__ is None
assert importlib.util.find_spec("corral.errors") is None
foreign = {name.partition(".")[0] for name in sys.modules} - set(sys.stdlib_module_names)
print(corral.sdk.SDK_VERSION, sorted(name for name in foreign if not name.startswith("__")))
"""
    ran = subprocess.run(
        [sys.executable, "-I", "-S", "-c", script, str(scratch / "site")],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() == f"{SDK_VERSION} ['corral', 'msgspec']"


def test_no_file_of_the_sdk_imports_anything_of_corral_but_the_sdk():
    sources = sorted((ROOT / "src/corral/sdk").rglob("*.py"))
    assert len(sources) > 20
    for source in sources:
        for line in source.read_text().splitlines():
            words = line.split()
            if len(words) > 1 and words[0] in ("from", "import") and words[1].startswith("corral"):
                assert words[1].startswith("corral.sdk"), f"{source.name}: {line}"
