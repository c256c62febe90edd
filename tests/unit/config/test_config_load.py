"""What wins, what is refused, and how the refusal reads."""

from __future__ import annotations

import pathlib
import re

import msgspec
import pytest

from corral.errors import Code, Rejected
from corral.system.config import ControllerConfig, DaemonConfig, load_controller, load_daemon, node_id_of_host
from corral.system.config_keys import keys_of

HEADER = "format: corral-controller\nversion: 1\n"


def written(directory: pathlib.Path, content: str) -> pathlib.Path:
    path = directory / "corral.yaml"
    path.write_text(content)
    return path


def refusal(path: pathlib.Path | None = None, env: dict[str, str] | None = None, **flags: object) -> Rejected:
    with pytest.raises(Rejected) as caught:
        load_controller(path, env or {}, {key.replace("__", "."): value for key, value in flags.items()})
    return caught.value


def test_without_anything_every_key_has_its_default() -> None:
    config, sources = load_controller(None, {}, {})
    assert config == ControllerConfig()
    assert set(sources.values()) == {"default"}
    assert load_daemon(None, {}, {})[0] == DaemonConfig()


def test_flags_win_over_environment_over_file_over_default(tmp_path: pathlib.Path) -> None:
    path = written(
        tmp_path, HEADER + "http:\n  listen: 127.0.0.1:1\n  body_limit_bytes: 2048\nlog:\n  level: warn\n"
    )
    env = {"CORRAL_HTTP_LISTEN": "127.0.0.1:2", "CORRAL_LOG_LEVEL": "debug"}
    config, sources = load_controller(path, env, {"http.listen": "127.0.0.1:3", "grpc.listen": None})
    assert config.http.listen == "127.0.0.1:3"
    assert config.log.level == "DEBUG"
    assert config.http.body_limit_bytes == 2048
    assert sources["http.listen"] == "flag"
    assert sources["log.level"] == "environment CORRAL_LOG_LEVEL"
    assert sources["http.body_limit_bytes"] == f"file {path}:5"
    assert sources["grpc.listen"] == "default"


def test_an_unknown_key_is_refused_with_file_line_and_the_nearest_one(tmp_path: pathlib.Path) -> None:
    error = refusal(written(tmp_path, HEADER + "http:\n  listn: x\n"))
    assert error.code is Code.INVALID_CONFIG
    assert error.field == "http.listn"
    assert "line 4" in error.message
    assert "corral.yaml" in error.message
    assert error.hint == "did you mean 'http.listen'?"


def test_an_unknown_section_is_refused_at_the_top(tmp_path: pathlib.Path) -> None:
    assert refusal(written(tmp_path, HEADER + "metrcs: {}\n")).hint == "did you mean 'metrics'?"


def test_an_unknown_key_deep_down_is_refused(tmp_path: pathlib.Path) -> None:
    error = refusal(written(tmp_path, HEADER + "http:\n  cors:\n    origin: []\n"))
    assert error.field == "http.cors.origin"
    assert error.hint == "did you mean 'http.cors.origins'?"


def test_an_unknown_environment_variable_is_refused_with_the_nearest_one() -> None:
    error = refusal(env={"CORRAL_HTTP_LISTN": "x"})
    assert error.code is Code.INVALID_CONFIG
    assert error.hint == "did you mean CORRAL_HTTP_LISTEN?"


def test_an_unknown_flag_key_is_refused() -> None:
    assert refusal(http__listn="x").hint == "did you mean 'http.listen'?"


def test_names_of_the_command_line_and_secrets_and_the_other_role_are_left_alone() -> None:
    env = {
        "CORRAL_URL": "http://x",
        "CORRAL_TOKEN": "t",
        "CORRAL_CONTEXT": "c",
        "CORRAL_CA": "f",
        "CORRAL_CONFIG": "f",
        "CORRAL_SECRET_ANYTHING": "s",
        "CORRAL_NODE_ID": "n",
        "PATH": "/bin",
    }
    assert load_controller(None, env, {})[0] == ControllerConfig()
    assert load_daemon(None, env, {})[0].node.id == "n"


@pytest.mark.parametrize(
    ("content", "fragment"),
    [
        ("", "does not say what it is"),
        ("[]", "does not say what it is"),
        ("http: {}\n", "does not say what it is"),
        ("format: corral-daemon\nversion: 1\n", "says it is 'corral-daemon', wanted 'corral-controller'"),
        ("format: corral-controller\n", "no version"),
        ("format: corral-controller\nversion: one\n", "no version"),
        (HEADER + "http: [\n", "not valid YAML"),
        (HEADER + "http: 5\n", "holds keys, not a value"),
        (HEADER + "http.listen: x\n", "is not a key"),
        (HEADER + "http:\n  listen: {}\n", "must be a single value"),
        (HEADER + "http:\n  listen: a:1\n  listen: a:2\n", "stands twice"),
        (HEADER + "http:\n  cors:\n    origins: https://a\n", "must be a list"),
        (HEADER + "lease:\n  ttl_seconds: !!python/object:x 1\n", "not a value that YAML knows"),
    ],
)
def test_a_file_that_is_not_ours_or_damaged_is_refused(
    tmp_path: pathlib.Path, content: str, fragment: str
) -> None:
    error = refusal(written(tmp_path, content))
    assert error.code is Code.INVALID_CONFIG
    assert fragment in error.message


def test_a_newer_file_is_refused_as_too_new(tmp_path: pathlib.Path) -> None:
    error = refusal(written(tmp_path, "format: corral-controller\nversion: 2\nnew_key: 1\n"))
    assert error.code is Code.FORMAT_TOO_NEW


def test_a_missing_file_is_refused(tmp_path: pathlib.Path) -> None:
    assert "No such file" in refusal(tmp_path / "none.yaml").message


def test_a_file_that_is_not_text_is_refused(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "corral.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    assert refusal(path).code is Code.INVALID_CONFIG


def test_an_empty_section_and_an_empty_value_mean_not_set(tmp_path: pathlib.Path) -> None:
    path = written(tmp_path, HEADER + "http:\n  # listen: a:1\nlog:\n  level:\n")
    assert load_controller(path, {}, {})[0] == ControllerConfig()


def test_text_stays_text_whatever_yaml_would_make_of_it(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "daemon.yaml"
    path.write_text("format: corral-daemon\nversion: 1\nnode:\n  id: 007\n  labels: {ssd: on, rack: 12}\n")
    config, _ = load_daemon(path, {}, {})
    assert config.node.id == "007"
    assert config.node.labels == {"ssd": "on", "rack": "12"}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("a:1,b:2", ("a:1", "b:2")),
        ("[a:1, b:2]", ("a:1", "b:2")),
        ("[::1]:80,b:2", ("[::1]:80", "b:2")),
        ('["[::1]:80"]', ("[::1]:80",)),
        ("a:1, a:1", ("a:1",)),
        ("", ()),
    ],
)
def test_a_list_in_the_environment_is_commas_or_yaml(text: str, wanted: tuple[str, ...]) -> None:
    assert load_daemon(None, {"CORRAL_CONTROLLERS": text}, {})[0].controllers == wanted


@pytest.mark.parametrize("text", ["zone=a,ssd=yes", "{zone: a, ssd: yes}"])
def test_a_map_in_the_environment_is_pairs_or_yaml(text: str) -> None:
    config, _ = load_daemon(None, {"CORRAL_NODE_LABELS": text}, {})
    assert config.node.labels == {"zone": "a", "ssd": "yes"}


def test_a_map_without_pairs_is_refused() -> None:
    with pytest.raises(Rejected, match="name=value"):
        load_daemon(None, {"CORRAL_NODE_LABELS": "zone"}, {})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("http.listen", "nowhere"),
        ("http.advertise", "host:0"),
        ("http.body_limit_bytes", 1),
        ("http.body_limit_bytes", "much"),
        ("http.cors.origins", ["*"]),
        ("http.cors.origins", ["https://a/b"]),
        ("store.url", "mysql://x"),
        ("store.commit_wait_seconds", 0),
        ("store.commit_wait_seconds", ".nan"),
        ("lease.ttl_seconds", -1),
        ("lease.ttl_seconds", True),
        ("bootstrap.enabled", "perhaps"),
        ("log.level", "LOUD"),
        ("log.format", "xml"),
        ("metrics.scrape_networks", ["10.0.0.1/8"]),
        ("pki.node_certificate_days", 0),
        ("retention.events", 0),
        ("data", ""),
    ],
)
def test_a_value_that_cannot_be_is_refused_by_key_and_source(key: str, value: object) -> None:
    with pytest.raises(Rejected) as caught:
        load_controller(None, {}, {key: value})
    assert caught.value.code is Code.INVALID_CONFIG
    assert caught.value.field == key
    assert f"{key} (flag) cannot be used" in caught.value.message


@pytest.mark.parametrize(
    ("flags", "fragment"),
    [
        ({"lease.ttl_seconds": 6}, "leave nothing of lease.ttl_seconds"),
        ({"grpc.listen": "127.0.0.1:8480"}, "grpc.listen and http.listen are both"),
        ({"http.listen": "127.0.0.1:8482"}, "bootstrap.listen and http.listen are both"),
        ({"grpc.listen": "127.0.0.1:65535"}, "no port + 1"),
    ],
)
def test_values_that_are_wrong_only_together_are_refused(flags: dict[str, object], fragment: str) -> None:
    with pytest.raises(Rejected, match=re.escape(fragment)):
        load_controller(None, {}, flags)


def test_a_spool_smaller_than_its_log_is_refused() -> None:
    with pytest.raises(Rejected, match=r"spool\.log_bytes"):
        load_daemon(None, {}, {"spool.max_bytes": 4096})


def test_picked_ports_never_collide_with_each_other() -> None:
    config, _ = load_controller(None, {}, {"http.listen": "127.0.0.1:0", "grpc.listen": "127.0.0.1:0"})
    assert config.bootstrap_address.port == 0


def test_what_is_left_empty_is_derived() -> None:
    config, _ = load_controller(None, {}, {"data": "/srv/c", "grpc.listen": "[::1]:9000"})
    assert str(config.cluster_key_path) == "/srv/c/ca/cluster.key"
    assert str(config.bootstrap_address) == "[::1]:9001"
    given, _ = load_controller(None, {}, {"pki.cluster_key_file": "/k", "bootstrap.listen": "h:7"})
    assert str(given.cluster_key_path) == "/k"
    assert str(given.bootstrap_address) == "h:7"


@pytest.mark.parametrize(
    ("host", "wanted"),
    [
        ("web-1.example.org", "web-1"),
        ("WEB_1", "web_1"),
        ("über", "ber"),
        ("-.-", "node"),
        ("", "node"),
        ("x" * 99, "x" * 63),
    ],
)
def test_a_node_id_is_made_of_any_host_name(host: str, wanted: str) -> None:
    assert node_id_of_host(host) == wanted


def test_every_key_has_a_description_and_a_default_that_it_would_accept() -> None:
    for schema in (ControllerConfig, DaemonConfig):
        for key in keys_of(schema).values():
            assert key.description.endswith("."), key.path
            assert key.accept(key.default) == key.default, key.path


def test_a_configuration_cannot_be_changed() -> None:
    config, _ = load_controller(None, {}, {})
    with pytest.raises(AttributeError):
        config.http.listen = "x:1"  # type: ignore[misc]
    assert msgspec.structs.replace(config) == config


@pytest.mark.parametrize(
    ("flags", "field"),
    [
        ({"http__tls__mode": "files"}, "http.tls.certificate"),
        ({"http__tls__mode": "files", "http__tls__certificate": "/a"}, "http.tls.key"),
        ({"http__tls__certificate": "/a"}, "http.tls.certificate"),
        ({"http__tls__mode": "cluster", "http__tls__key": "/a"}, "http.tls.key"),
        ({"http__tls__mode": "on"}, "http.tls.mode"),
        ({"http__allowed_hosts": ["panel.example.org:443"]}, "http.allowed_hosts"),
        ({"http__allowed_hosts": ["*"]}, "http.allowed_hosts"),
        ({"http__cors__origins": ["*"]}, "http.cors.origins"),
        ({"http__public_url": "panel.example.org"}, "http.public_url"),
        ({"http__public_url": "https://panel.example.org/corral"}, "http.public_url"),
        (
            {"http__public_url": "https://panel.example.org", "http__allowed_hosts": ["localhost"]},
            "http.allowed_hosts",
        ),
    ],
)
def test_settings_of_tls_hosts_and_origins_that_do_not_fit_are_refused(
    flags: dict[str, object], field: str
) -> None:
    error = refusal(**flags)
    assert (error.code, error.field) == (Code.INVALID_CONFIG, field)


def test_the_mode_of_tls_is_a_word_in_a_file_and_off_is_one_of_them(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "controller.yaml"
    for mode, scheme in (("off", "http"), ("cluster", "https")):
        path.write_text(f"format: corral-controller\nversion: 1\nhttp:\n  tls:\n    mode: {mode}\n")
        http = load_controller(path, {}, {})[0].http
        assert (http.tls.mode, http.scheme) == (mode, scheme)


OIDC = """format: corral-controller
version: 1
http:
  public_url: https://corral.example.org
oidc:
  issuer: https://id.example.org/realms/games
  client_id: corral
  bindings:
    game-admins: ADMIN
    lobby team: "OPERATOR groups=lobby-*,hub nodes=eu-*; VIEWER"
"""


def test_a_provider_of_openid_connect_is_configured_in_the_file(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "controller.yaml"
    path.write_text(OIDC)
    config = load_controller(path, {}, {})[0]
    assert config.http.public_url == "https://corral.example.org"
    assert config.oidc.bindings["lobby team"] == "OPERATOR groups=lobby-*,hub nodes=eu-*; VIEWER"


@pytest.mark.parametrize(
    ("line", "changed", "field"),
    [
        ("issuer: https://id", "issuer: http://id", "oidc.issuer"),
        ("client_id: corral", "client_id: ''", "oidc.client_id"),
        ("public_url: https://corral.example.org", "public_url: ''", "http.public_url"),
        (
            "public_url: https://corral.example.org",
            "public_url: http://corral.example.org",
            "http.public_url",
        ),
        ("client_id: corral", "public_url: https://corral.example.org", "oidc.public_url"),
        ("game-admins: ADMIN", "game-admins: ADMIN gruops=x", "oidc.bindings"),
        ("game-admins: ADMIN", "game-admins: ''", "oidc.bindings"),
        ("game-admins: ADMIN", "game-admins: ADMN", "oidc.bindings"),
        ("game-admins: ADMIN", "game-admins: admin", "oidc.bindings"),
        ("client_id: corral", "client: corral", "oidc.client"),
    ],
)
def test_half_a_provider_is_refused(tmp_path: pathlib.Path, line: str, changed: str, field: str) -> None:
    path = tmp_path / "controller.yaml"
    path.write_text(OIDC.replace(line, changed))
    with pytest.raises(Rejected) as caught:
        load_controller(path, {}, {})
    assert (caught.value.code, caught.value.field) == (Code.INVALID_CONFIG, field)
