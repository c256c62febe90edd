"""The demo's module: one of ours, built and installed as anybody's would be."""

from __future__ import annotations

import pathlib
import tempfile
from typing import Any, Final

import corral
from corral.cli.api.client import Client
from corral.cli.api.form_upload import FilePart, send_form
from corral.cli.failure import Refused
from corral.cli.module.files import build_source
from corral.cli.module.views import MODULES, module_path, told

MODULE: Final = "stats-aggregator"
SOURCE: Final = pathlib.Path(corral.__file__).resolve().parents[2] / "modules" / MODULE
"""Beside the source of Corral; a wheel does not bring it."""


def run_demo_module(client: Client) -> str:
    """Install it unless it is there, whatever somebody did to it; empty where its source is missing."""
    found = _find(client)
    if found is None and not SOURCE.is_dir():
        return ""
    return told(found or _install(client))


def _find(client: Client) -> Any:
    try:
        return client.get(module_path(MODULE))
    except Refused as refusal:
        if refusal.status == 404:
            return None
        raise


def _install(client: Client) -> Any:
    with tempfile.TemporaryDirectory(prefix="corral-demo-") as directory:
        built = build_source(SOURCE, pathlib.Path(directory) / f"{MODULE}.cmod")
        part = FilePart(field="file", path=built.path)
        return send_form(client, MODULES, [part], what="installing the demo's module")
