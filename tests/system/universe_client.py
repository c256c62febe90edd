"""A client of Universe, as its users write them: from Universe's documentation alone, with the standard library.

    universe_client.py URL TOKEN_FILE

It creates, watches, commands and stops instances, follows a live log, edits configurations and templates, and prints a line
for each step. It exits with 1, and says why, at the first answer that is not as documented.
"""

from __future__ import annotations

import base64
import io
import json
import os
import pathlib
import socket
import struct
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
import zipfile
from typing import Any

SERVER = """\
import sys
print("server begins", flush=True)
for line in sys.stdin:
    line = line.strip()
    print(f"you said {line}", flush=True)
    if line == "stop":
        break
"""
INSTANCE = {
    "id",
    "configurationName",
    "wrapperNodeId",
    "hostAddress",
    "allocatedPort",
    "state",
    "lastHeartbeat",
    "processPid",
    "allocatedRamMB",
    "allocatedCpu",
    "runtime",
}
CONFIGURATION = {
    "name": "Arena",
    "runtime": "process",
    "command": "python3 -u server.py %PORT%",
    "static": False,
    "ramMB": 64,
    "cpu": 50,
    "instanceGroups": ["games", "arenas"],
    "nodes": [],
    "hostAddress": "127.0.0.1",
    "availablePorts": {"min": 34100, "max": 34199},
    "minimumServiceCount": 0,
    "environmentVariables": {"GREETING": "hello world"},
    "templateInstallationConfig": {
        "allOf": [{"name": "base", "group": "arena", "storage": "local", "priority": 1}],
        "allInGroups": [],
        "oneOf": [],
        "oneInGroups": [],
        "onTemplatePasteOverridePresentFiles": True,
    },
    "fileModifications": ["settings.txt"],
    "properties": {"map-size": "12"},
    "additionalPorts": [],
}
PATIENCE = 60.0


class Refused(Exception):
    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text}")
        self.status = status
        self.text = text


def say(text: str) -> None:
    print(f"ok: {text}", flush=True)


def check(holds: bool, what: str) -> None:
    if not holds:
        raise SystemExit(f"not as documented: {what}")


class Universe:
    """The REST API."""

    def __init__(self, url: str, token: str) -> None:
        self.url = url
        self.token = token

    def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        raw: bytes | None = None,
        kind: str = "application/json",
        token: str | None = None,
    ) -> tuple[int, bytes]:
        data = raw if raw is not None else None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data=data, method=method)
        shown = self.token if token is None else token
        if shown:
            request.add_header("Authorization", f"Bearer {shown}")
        if data is not None:
            request.add_header("Content-Type", kind)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            text = error.read()
            found = json.loads(text) if text else {"error": ""}
            check(set(found) == {"error"} and isinstance(found["error"], str), f"{method} {path}: {text!r}")
            raise Refused(error.code, found["error"]) from None

    def call(self, method: str, path: str, body: Any = None, *, status: int = 200, **more: Any) -> Any:
        found, text = self.send(method, path, body, **more)
        check(found == status, f"{method} {path} answers {found}, not {status}")
        return json.loads(text) if text else None

    def refused(self, status: int, method: str, path: str, body: Any = None, **more: Any) -> str:
        try:
            found, _ = self.send(method, path, body, **more)
        except Refused as error:
            check(error.status == status, f"{method} {path} is refused with {error}, not with {status}")
            return error.text
        raise SystemExit(f"not as documented: {method} {path} answers {found}, not {status}")

    def until(self, id: str, state: str) -> dict[str, Any]:
        """The instance once it has that state."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            found: dict[str, Any] = self.call("GET", f"/api/instances/{id}")
            if found["state"] == state:
                return found
            time.sleep(0.1)
        raise SystemExit(f"instance {id} is {found['state']} after {PATIENCE:g} s, not {state}")


class LiveLog:
    """A WebSocket that receives texts, as of RFC 6455; no extensions."""

    def __init__(self, url: str, path: str, *, token: str = "") -> None:
        host = urllib.parse.urlsplit(url)
        assert host.hostname is not None
        self._socket = socket.create_connection((host.hostname, host.port or 80), timeout=PATIENCE)
        key = base64.b64encode(os.urandom(16)).decode()
        lines = [
            f"GET {path} HTTP/1.1",
            f"Host: {host.netloc}",
            "Upgrade: websocket",
            "Connection: Upgrade",
            f"Sec-WebSocket-Key: {key}",
            "Sec-WebSocket-Version: 13",
            *([f"Authorization: Bearer {token}"] if token else []),
        ]
        self._socket.sendall("\r\n".join([*lines, "", ""]).encode())
        self._file = self._socket.makefile("rb")
        self.status = int(self._file.readline().split()[1])
        while self._file.readline().strip():
            pass

    def line(self) -> str:
        """The next text."""
        while True:
            first, second = self._exactly(2)
            length = second & 0x7F
            if length == 126:
                (length,) = struct.unpack("!H", self._exactly(2))
            elif length == 127:
                (length,) = struct.unpack("!Q", self._exactly(8))
            content = self._exactly(length)
            opcode = first & 0x0F
            if opcode == 1:
                return content.decode()
            if opcode == 9:
                mask = os.urandom(4)
                masked = bytes(byte ^ mask[i % 4] for i, byte in enumerate(content))
                self._socket.sendall(bytes([0x8A, 0x80 | len(content)]) + mask + masked)
            elif opcode == 8:
                raise SystemExit(f"the live log was closed: {content[2:].decode()}")

    def until(self, text: str) -> list[str]:
        found: list[str] = []
        while text not in found:
            found.append(self.line())
        return found

    def close(self) -> None:
        self._file.close()
        self._socket.close()

    def _exactly(self, count: int) -> bytes:
        found = self._file.read(count)
        if len(found) != count:
            raise SystemExit("the live log ended within a message")
        return found


def about_the_controller(api: Universe) -> str:
    ping = api.call("GET", "/api/ping", token="")
    check(ping["status"] == "ok" and ping["master"] is True, f"ping: {ping}")
    node = api.call("GET", "/api/node")
    check(node["id"] == ping["nodeId"] and node["clusterName"] == ping["clusterName"], f"node: {node}")
    check(int(node["uptimeMs"]) > 0 and isinstance(node["uptimeMs"], str), f"uptime: {node}")
    check(int(node["system"]["totalMemory"]) >= int(node["system"]["freeMemory"]), f"system: {node}")
    check(str(node["apiPort"]) == api.url.rpartition(":")[2], f"port of the API: {node}")
    config = api.call("GET", "/api/node/config")
    check("http" in config and "store" in config, f"configuration: {config}")
    api.refused(401, "GET", "/api/node", token="")
    say(f"controller {node['id']} of cluster {node['clusterName']}, version {node['version']}")
    nodes = api.call("GET", "/api/cluster/nodes")
    check(set(nodes[0]) == {"id", "name", "address", "port", "local", "resources"}, f"nodes: {nodes}")
    one = api.call("GET", f"/api/cluster/nodes/{nodes[0]['id']}")
    check(isinstance(one.pop("instances"), list), "a node has instances")
    check({**one, "resources": {}} == {**nodes[0], "resources": {}}, f"node: {one}")
    api.refused(404, "GET", "/api/cluster/nodes/none-such")
    say(f"node {nodes[0]['id']}")
    name: str = nodes[0]["id"]
    return name


def about_templates(api: Universe) -> None:
    path = "/api/templates/Arena/Base"
    made = api.call("POST", f"{path}/files/server.py", raw=SERVER.encode(), kind="text/plain", status=201)
    check(set(made) == {"message", "path"} and made["path"] == "server.py", f"a file: {made}")
    settings = b"port=%PORT%\nsize=%MAP_SIZE%\n"
    api.call("POST", f"{path}/files/settings.txt", raw=settings, kind="text/plain", status=201)
    api.refused(404, "PATCH", f"{path}/files/none.txt", raw=b"x", kind="text/plain")
    api.call("PATCH", f"{path}/files/settings.txt", raw=settings + b"mode=1\n", kind="text/plain")
    _, text = api.send("GET", f"{path}/files/settings.txt")
    check(text == settings + b"mode=1\n", f"what was written: {text!r}")
    info = api.call("GET", path)
    check(info == {"group": "arena", "name": "base", "files": ["server.py", "settings.txt"]}, f"info: {info}")
    check(api.call("GET", f"{path}/files") == info, "the list of files")
    listed = api.call("GET", "/api/templates")
    check({"group": "arena", "name": "base"}.items() <= listed[0].items(), f"templates: {listed}")
    _, archive = api.send("POST", f"{path}/export")
    names = sorted(zipfile.ZipFile(io.BytesIO(archive)).namelist())
    check([each for each in names if not each.endswith("/")] == info["files"], f"the archive: {names}")
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as made_zip:
        made_zip.writestr("motd.txt", "welcome")
        made_zip.writestr("plugins/a.txt", "a")
    api.call(
        "POST", "/api/templates/arena/extra/import", raw=packed.getvalue(), kind="application/zip", status=201
    )
    api.call("DELETE", "/api/templates/arena/extra/files/motd.txt")
    check(api.call("GET", "/api/templates/arena/extra")["files"] == ["plugins/a.txt"], "a deleted file")
    api.refused(404, "GET", "/api/templates/arena/extra/files/motd.txt")
    api.refused(422, "POST", "/api/templates/arena/extra/files/..%2f..%2fx", raw=b"x", kind="text/plain")
    synced = api.call("POST", f"{path}/sync", {"storage": "local"})
    check(all(each["success"] and each["storage"] == "local" for each in synced), f"sync: {synced}")
    check(
        len(api.call("POST", "/api/templates/sync", {"pattern": "arena/*"})) == 2 * len(synced), "sync of all"
    )
    api.refused(400, "POST", f"{path}/sync", {"storage": "s3"})
    say("templates are written, changed, exported, imported and sent to nodes")


def about_configurations(api: Universe) -> None:
    path = "/api/configurations/Arena"
    api.refused(404, "GET", path)
    api.call("PUT", path, CONFIGURATION)
    found = api.call("GET", path)
    check(found == {**CONFIGURATION, "name": "arena", "cpu": 50.0}, f"what was written: {found}")
    check(found in api.call("GET", "/api/configurations"), "the list has it")
    text = api.refused(400, "PUT", path, {**CONFIGURATION, "runtime": "docker"})
    check("runtime" in text, text)
    text = api.refused(400, "PUT", path, {**CONFIGURATION, "colour": "red"})
    check("colour" in text, text)
    check(api.call("GET", path) == found, "a refused one changes nothing")
    api.call("PUT", path, {**found, "ramMB": 96})
    check(api.call("GET", path) == {**found, "ramMB": 96}, "what was changed")
    say("a configuration is written, read, refused and changed")


def about_instances(api: Universe, node: str) -> None:
    text = api.refused(400, "POST", "/api/instances", {"configurationName": "none-such"})
    check("none-such" in text, text)
    created = api.call("POST", "/api/instances", {"configurationName": "Arena"}, status=201)
    check(set(created) == INSTANCE and created["state"] == "CREATING", f"created: {created}")
    check((created["configurationName"], created["wrapperNodeId"]) == ("arena", node), f"created: {created}")
    id = created["id"]
    online = api.until(id, "ONLINE")
    check(34100 <= online["allocatedPort"] <= 34199, f"its port: {online}")
    check(int(online["processPid"]) > 0 and isinstance(online["processPid"], str), f"its pid: {online}")
    now = time.time() * 1000
    check(abs(int(online["lastHeartbeat"]) - now) < 60_000, f"its heartbeat: {online}, now {now:.0f}")
    check(
        (online["allocatedRamMB"], online["allocatedCpu"], online["runtime"]) == (96, 50, "process"),
        str(online),
    )
    check(id in [each["id"] for each in api.call("GET", "/api/instances")], "the list has it")
    inside = api.call("GET", f"/api/cluster/nodes/{node}")
    check(id in [each["id"] for each in inside["instances"]], "its node has it")
    check(inside["resources"]["usedRamMB"] >= 96, f"its node counts it: {inside}")
    say(f"instance {id} is created and online")
    about_its_log(api, id)
    changed = api.call("PATCH", f"/api/instances/{id}", {"hostAddress": "game.example.org"})
    check(changed["hostAddress"] == "game.example.org", f"its address: {changed}")
    text = api.refused(400, "PATCH", f"/api/instances/{id}", {"allocatedPort": 1})
    check("allocatedPort" in text, text)
    for state in ("OFFLINE", "ONLINE"):
        body = {"state": state, "lastHeartbeat": str(int(now))}
        check(api.call("PUT", f"/api/instances/{id}/state", body)["id"] == id, "a report")
    api.refused(400, "PUT", f"/api/instances/{id}/state", {"state": "STOPPED"})
    say("its address and its readiness are reported")
    about_its_lifecycle(api, id)


def about_its_log(api: Universe, id: str) -> None:
    log = LiveLog(api.url, f"/api/instances/{id}/live-log", token=api.token)
    check(log.status == 101, f"the live log answers {log.status}")
    done = api.call("POST", f"/api/instances/{id}/execute", {"command": "one"})
    check(set(done) == {"message"}, f"a command: {done}")
    log.until("you said one")
    api.call("POST", f"/api/instances/{id}/execute", {"command": "two"})
    check(log.until("you said two") == ["you said two"], "a line is sent once")
    log.close()
    refused = LiveLog(api.url, f"/api/instances/{id}/live-log")
    check(refused.status == 401, f"without a token the live log answers {refused.status}")
    refused.close()
    ticket = api.call("POST", "/api/v1/events/tickets")["ticket"]
    browser = LiveLog(api.url, f"/api/instances/{id}/live-log?ticket={ticket}")
    check(browser.status == 101, f"with a ticket the live log answers {browser.status}")
    browser.close()
    logs = api.call("GET", f"/api/instances/{id}/logs?lines=2")
    check(logs["lines"] == ["you said one", "you said two"], f"the last lines: {logs}")
    check((logs["instanceId"], logs["requestedLines"]) == (id, 2), f"the last lines: {logs}")
    say("its log is read and followed, and it takes commands")


def about_its_lifecycle(api: Universe, id: str) -> None:
    path = f"/api/instances/{id}/lifecycle"
    before = api.call("GET", f"/api/instances/{id}")["processPid"]
    told = api.call("PATCH", f"{path}?target=restart")
    check(told["instance"]["id"] == id and isinstance(told["message"], str), f"restart: {told}")
    end = time.monotonic() + PATIENCE
    while (found := api.until(id, "ONLINE"))["processPid"] in (before, "0"):
        check(time.monotonic() < end, f"it is restarted: {found}")
        time.sleep(0.1)
    api.call("PATCH", f"{path}?target=stop")
    api.until(id, "STOPPED")
    api.call("PATCH", f"{path}?target=start")
    api.until(id, "ONLINE")
    api.refused(400, "PATCH", f"{path}?target=explode")
    check(set(api.call("DELETE", f"/api/instances/{id}")) == {"message"}, "a stop is answered at once")
    api.until(id, "STOPPED")
    check(id in [each["id"] for each in api.call("GET", "/api/instances")], "it is listed for a moment")
    say("it is restarted, stopped, started and deleted")
    api.call("DELETE", f"/api/instances/{id}")
    api.refused(404, "GET", f"/api/instances/{id}")
    api.call("DELETE", "/api/configurations/arena", status=204)
    api.refused(404, "GET", "/api/configurations/arena")
    say("it is forgotten, and so is its configuration")


def main() -> None:
    url, token = sys.argv[1], pathlib.Path(sys.argv[2]).read_text().strip()
    api = Universe(url.rstrip("/"), token)
    node = about_the_controller(api)
    about_templates(api)
    about_configurations(api)
    about_instances(api, node)
    print("everything is as documented", flush=True)


main()
