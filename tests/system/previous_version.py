"""The newest released version older than this one, installed into an environment of its own."""

from __future__ import annotations

import pathlib
import subprocess
import sys
import tarfile

ROOT = pathlib.Path(__file__).resolve().parents[2]


def newest_release() -> str | None:
    """The newest tag `v*` that is not this very commit; None before the first release."""
    command = [
        "git",
        "-C",
        str(ROOT),
        "tag",
        "--list",
        "v*",
        "--sort=-version:refname",
        "--no-contains",
        "HEAD",
    ]
    found = subprocess.run(command, capture_output=True, text=True)
    return found.stdout.split()[0] if found.returncode == 0 and found.stdout.split() else None


def install(tag: str, directory: pathlib.Path) -> str:
    """Unpack a release, install it with its own lock file, and return its interpreter."""
    archive = directory / "source.tar"
    subprocess.run(["git", "-C", str(ROOT), "archive", "-o", str(archive), tag], check=True)
    with tarfile.open(archive) as source:
        source.extractall(directory / "source", filter="data")
    python = directory / "venv" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", str(directory / "venv")], check=True)
    pip = [str(python), "-m", "pip", "--quiet", "install"]
    lock = directory / "source" / "requirements" / "runtime.lock"
    subprocess.run([*pip, "--no-deps", "--require-hashes", "-r", str(lock)], check=True)
    subprocess.run([*pip, "--no-deps", str(directory / "source")], check=True)
    return str(python)
