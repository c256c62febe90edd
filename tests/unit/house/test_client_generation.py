"""The generated part of the client is what the route table says."""

from __future__ import annotations

import importlib.util
import pathlib
import subprocess
import sys
from types import ModuleType

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate_client", ROOT / "tools" / "generate_client.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_client_is_as_the_route_table_describes_the_api(generator: ModuleType) -> None:
    assert generator.stale() == [], "run `make client`"


def test_the_rest_of_a_path_is_a_parameter_called_path(generator: ModuleType) -> None:
    """The client keeps its slashes by that name: the document does not say it."""
    rests = {route.path for route in generator.ROUTES if route.rest}
    assert rests
    assert {path for path in rests if not path.endswith("{path}")} == set()


def test_two_operations_of_one_name_are_refused(generator: ModuleType) -> None:
    operations = list(generator.read_operations(*described(generator)))
    with pytest.raises(SystemExit, match="add to NAMED"):
        generator.check_names([*operations, operations[0]._replace(path="/api/v1/other")])


def described(generator: ModuleType) -> tuple[dict, object]:
    document = generator.document()
    return document, generator.Models(document["components"]["schemas"])


def test_names_of_methods_follow_the_rule(generator: ModuleType) -> None:
    def name(method: str, path: str, *siblings: str, lists: bool = False) -> str:
        return ".".join(generator.method_name(method, f"/api/v1/{path}", siblings, lists=lists))

    assert name("GET", "groups", lists=True) == "groups.list"
    assert name("POST", "groups") == "groups.create"
    assert name("PATCH", "groups/{name}") == "groups.update"
    assert name("POST", "groups/{name}/scale") == "groups.scale"
    assert name("GET", "instances/{id}/console/search") == "instances.console_search"
    assert name("GET", "groups/{name}/revisions/{number}") == "groups.get_revision"
    assert name("POST", "nodes/join-tokens", "get") == "nodes.create_join_token"
    assert name("PUT", "modules/{id}/config", "get") == "modules.put_config"
    assert name("DELETE", "users/{name}/totp") == "users.delete_totp"


def test_to_import_the_parts_that_commands_use_needs_no_msgspec() -> None:
    code = (
        "import sys, corral.client.sync_transport, corral.client.failures, corral.client.event_frames, "
        "corral.client.trust; assert not {'msgspec', 'asyncio'} & sys.modules.keys()"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
