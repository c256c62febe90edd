"""Routes, commands and values as a module writes them down."""

from __future__ import annotations

import msgspec
import pytest

from corral.sdk import (
    BadRegistration,
    CommandParameter,
    Commands,
    HttpError,
    InstanceSpec,
    ResourceMissing,
    Resources,
    Response,
    Routes,
)


def answer(request: object) -> None: ...


@pytest.mark.parametrize(
    "path",
    ["", "players", "/a//b", "/a/", "/{a:path}/b", "/{A}", "/a b", "/../x", "/{a}/{a}", "/" + "x" * 300],
)
def test_a_path_that_cannot_be_is_refused(path):
    with pytest.raises(BadRegistration):
        Routes().get(path, answer)


@pytest.mark.parametrize("path", ["/", "/a", "/a/{b}/c.d", "/files/{rest:path}"])
def test_a_path_that_can_be_is_taken(path):
    Routes().get(path, answer)


def test_two_routes_that_cannot_be_told_apart_are_refused():
    routes = Routes()
    routes.get("/players/{name}", answer)
    routes.post("/players/{name}", answer)
    with pytest.raises(BadRegistration, match="twice"):
        routes.get("/players/{id}", answer)


@pytest.mark.parametrize("options", [{"body": object}, {"query": dict}, {"answer": range}])
def test_a_type_that_msgspec_does_not_know_is_refused_when_it_is_registered(options):
    with pytest.raises(BadRegistration):
        Routes().get("/a", answer, **options)


def test_commands_are_known_by_their_words():
    commands = Commands()
    commands.add(" stats   show", answer, parameters=[CommandParameter("player", required=False)])
    assert commands._declarations()[0].name == "stats show"
    for name in ("stats show", "", "  ", "a\nb"):
        with pytest.raises(BadRegistration):
            commands.add(name, answer)


@pytest.mark.parametrize("headers", [{"x": "a\r\nset-cookie: b"}, {"": "a"}, {"x\n": "a"}])
def test_a_header_that_could_end_the_head_is_refused(headers):
    with pytest.raises(ValueError, match="cannot be sent"):
        Response(b"", headers=headers)


def test_responses_take_the_natural_type_of_their_body():
    kinds = {
        kind: dict(Response.of(kind).headers).get("content-type", "") for kind in ("text", b"bytes", 3, None)
    }
    assert kinds == {
        "text": "text/plain; charset=utf-8",
        b"bytes": "application/octet-stream",
        3: "application/json",
        None: "",
    }
    assert Response.of(None).status == 204


def test_an_error_that_is_none_is_refused():
    with pytest.raises(ValueError, match="no status"):
        HttpError(200, "fine")


def test_of_an_instance_only_three_things_can_be_changed():
    spec = InstanceSpec(instance_id="a", group="g")
    spec.jvm_args = ["-Xmx1g"]
    spec.args += ["nogui"]
    spec.env |= {"A": "b"}
    for name in set(spec.__struct_fields__) - {"jvm_args", "args", "env"}:
        with pytest.raises(AttributeError, match="jvm_args, args and env"):
            setattr(spec, name, getattr(spec, name))
    with pytest.raises(AttributeError):
        spec.anything = 3
    assert msgspec.to_builtins(spec)["jvm_args"] == ["-Xmx1g"]


def test_resources_are_read_from_the_archive_and_from_nowhere_else(tmp_path):
    (tmp_path / "archive").mkdir()
    (tmp_path / "archive" / "mail.txt").write_text("hello")
    (tmp_path / "secret").write_text("no")
    resources = Resources(tmp_path / "archive")
    assert resources.read_text("mail.txt") == "hello"
    for name in ("../secret", str(tmp_path / "secret"), "none", "."):
        with pytest.raises(ResourceMissing):
            resources.read(name)
