"""`controller`, `daemon`, `up` and `down`, as far as they go without starting anything."""

from __future__ import annotations

import os
import pathlib
import signal
import socket
import subprocess
import sys
from collections.abc import Callable

import pytest
import yaml

Corral = Callable[..., subprocess.CompletedProcess[str]]


def test_a_printed_configuration_can_be_given_back(corral: Corral, tmp_path: pathlib.Path) -> None:
    first = corral("controller", "--data", "/d", "--http", "[::1]:0", "--store", "sqlite", "--print-config")
    assert first.returncode == 0
    file = tmp_path / "c.yaml"
    file.write_text(first.stdout)
    again = corral("controller", "--config", str(file), "--print-config")
    assert yaml.safe_load(again.stdout) == yaml.safe_load(first.stdout)
    assert f"# from: file {file}:" in again.stdout
    assert corral("controller", "--print-config", CORRAL_CONFIG=str(file)).stdout == again.stdout


def test_every_flag_of_a_daemon_reaches_its_key(corral: Corral) -> None:
    done = corral(
        *(
            "daemon",
            "--data",
            "/d",
            "--controller",
            "a:1,[::1]:2",
            "--node-id",
            "n1",
            "--advertise",
            "play.example",
        ),
        *("--labels", "zone=a,ssd=yes", "--log-level", "debug", "--log-format", "json", "--print-config"),
    )
    told = yaml.safe_load(done.stdout)
    assert told["controllers"] == ["a:1", "[::1]:2"]
    assert told["node"] == {
        "id": "n1",
        "labels": {"zone": "a", "ssd": "yes"},
        "advertise": "play.example",
        "machine_id": "",
    }
    assert told["log"] == {"level": "DEBUG", "format": "json"}


@pytest.mark.parametrize(
    ("arguments", "env", "fragment", "code"),
    [
        (("controller", "--http", "nowhere"), {}, "http.listen (flag) cannot be used", 78),
        (("controller",), {"CORRAL_HTTP_LISTN": "x"}, "did you mean CORRAL_HTTP_LISTEN?", 78),
        (("daemon", "--config", "/nonexistent.yaml"), {}, "cannot read /nonexistent.yaml", 78),
        (("daemon", "--labels", "zone"), {}, "name=value", 78),
        (("up", "--data", "/dev/null/x"), {}, "cannot use /dev/null/x", 1),
        (("up", "--data", "/nonexistent/d", "--http", "x"), {}, "http.listen (flag)", 1),
    ],
)
def test_a_configuration_that_cannot_be_has_a_code_of_its_own_and_two_lines(
    corral: Corral, arguments: tuple[str, ...], env: dict[str, str], fragment: str, code: int
) -> None:
    done = corral(*arguments, **env)
    assert done.returncode == code
    assert fragment in done.stderr
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr


def test_up_names_the_port_that_is_taken_and_how_to_choose_another(
    corral: Corral, tmp_path: pathlib.Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = corral("up", "--data", str(tmp_path / "d"), "--http", f"127.0.0.1:{port}")
    assert done.returncode == 1
    assert f"port {port} on 127.0.0.1 (http) is in use" in done.stderr
    assert "choose another with --http 127.0.0.1:" in done.stderr
    assert not (tmp_path / "d" / "up.pid").exists()


@pytest.mark.parametrize("make", [True, False])
def test_down_where_nothing_runs_says_so_and_is_content(
    corral: Corral, tmp_path: pathlib.Path, make: bool
) -> None:
    directory = tmp_path / "d"
    if make:
        directory.mkdir()
    done = corral("down", "--data", str(directory))
    assert (done.returncode, done.stdout) == (0, "nothing runs here\n")


@pytest.mark.parametrize("role", ["controller", "daemon"])
def test_no_modules_reaches_its_key(corral: Corral, role: str) -> None:
    told = yaml.safe_load(corral(role, "--no-modules", "--print-config").stdout)
    assert told["modules"]["enabled"] is False
    assert yaml.safe_load(corral(role, "--print-config").stdout)["modules"]["enabled"] is True


def test_the_directory_of_a_lost_token_is_not_taken_from_before_the_command(corral: Corral) -> None:
    done = corral("controller", "--data", "/d", "admin-token")
    assert (done.returncode, "--data has to come after" in done.stderr) == (2, True)


@pytest.mark.parametrize("role", ["controller", "daemon"])
def test_the_signal_for_dumps_does_not_end_a_role_that_is_still_starting(
    role: str, tmp_path: pathlib.Path
) -> None:
    """It reads its settings from a pipe, and waits there."""
    settings = tmp_path / "settings"
    os.mkfifo(settings)
    command = [
        sys.executable,
        "-m",
        "corral.cli",
        role,
        "--config",
        str(settings),
        "--data",
        str(tmp_path / "d"),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        with settings.open("w") as pipe:  # opens when the other end does
            process.send_signal(signal.SIGUSR1)
            process.send_signal(signal.SIGUSR1)
            pipe.write("no: format\n")
        _, told = process.communicate(timeout=60)
    assert "begin it with the lines" in told
    assert process.returncode == 78
