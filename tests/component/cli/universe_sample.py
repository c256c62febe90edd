"""A folder of Universe with every field of its tables in use."""

from __future__ import annotations

import json
import pathlib
from typing import Any

CONFIG: dict[str, Any] = {
    "address": "10.0.0.5",
    "port": 6000,
    "apiPort": 7000,
    "nodeId": "Master-1",
    "clusterName": "galaxy",
    "isMasterNode": True,
    "masterAddress": "10.0.0.5",
    "masterPort": 6000,
    "masterApiPort": 7000,
    "debug": True,
    "maxRamMB": 8192,
    "maxCpu": 350,
    "updateSources": [{"name": "paper", "url": "https://files.example.org/paper.jar"}],
    "nodeSpecificVariables": {"REGION": "eu", "RACK": 7},
    "bindAddress": "127.0.0.1",
    "publicAddress": "play.example.org",
}
PASSWORD = "correct-horse-battery"
DATABASE: dict[str, Any] = {
    "provider": "mongodb",
    "url": f"mongodb://root:{PASSWORD}@db.example.org",
    "host": "db.example.org",
    "port": 27017,
    "database": "universe",
    "username": "root",
    "password": PASSWORD,
}
LOBBY: dict[str, Any] = {
    "name": "Lobby",
    "runtime": "process",
    "command": "./server --port %PORT%",
    "static": False,
    "ramMB": 64,
    "cpu": 50,
    "instanceGroups": ["hub", "fallback"],
    "nodes": [],
    "hostAddress": "127.0.0.1",
    "availablePorts": {"min": 41000, "max": 41050},
    "minimumServiceCount": 1,
    "environmentVariables": {"WHERE": "%HOST_ADDRESS%", "LEVEL": 3},
    "templateInstallationConfig": {
        "allOf": [{"name": "Base", "group": "Global", "storage": "local", "priority": 0}],
        "allInGroups": [{"group": "packs", "priority": 5}],
        "oneOf": [{"name": "Arena", "group": "maps", "storage": "local", "priority": 9}],
        "oneInGroups": ["seasons"],
        "onTemplatePasteOverridePresentFiles": True,
    },
    "fileModifications": ["./server.properties"],
    "properties": {"map-size": 512},
    "additionalPorts": [{"port": 41090, "protocol": "TCP", "name": "Query"}],
}
WORLD: dict[str, Any] = {
    "name": "World",
    "runtime": "process",
    "command": "cat level.dat && exec sleep 3600",
    "static": True,
    "ramMB": 64,
    "minimumServiceCount": 1,
    "templateInstallationConfig": {"allOf": [{"name": "Base", "group": "Global"}]},
    "fileModifications": ["server.properties"],
    "owner": "somebody",
}
SERVER = """#!/usr/bin/env python3
import os, socket, sys
print(open("server.properties").read(), "at", os.environ["WHERE"], "level", os.environ["LEVEL"], flush=True)
listening = socket.create_server(("127.0.0.1", int(sys.argv[2])))
for line in sys.stdin:
    if line.strip() == "stop":
        break
"""


def write_folder(root: pathlib.Path, *, first_port: int = 41000) -> pathlib.Path:
    """Make the folder of the constants, with 20 ports from this one on."""
    ports = {
        "availablePorts": {"min": first_port, "max": first_port + 18},
        "additionalPorts": [{**LOBBY["additionalPorts"][0], "port": first_port + 19}],
    }
    files = {
        "config.json": json.dumps(CONFIG),
        "database.json": json.dumps(DATABASE),
        "configuration/Lobby.json": json.dumps({**LOBBY, **ports}),
        "configuration/World.json": json.dumps(WORLD),
        "configuration/readme.txt": "notes",
        "templates/Global/Base/server": SERVER,
        "templates/Global/Base/server.properties": "groups=%INSTANCE_GROUPS% size=%MAP_SIZE% port=%PORT%\n",
        "templates/packs/one/pack.txt": "one",
        "templates/packs/Two/pack2.txt": "two",
        "templates/maps/Arena/map.txt": "arena",
        "templates/seasons/winter/season.txt": "winter",
        "templates/readme.txt": "notes",
        "static/World/level.dat": "the old world\n",
        "static/nobody/level.dat": "nobody's\n",
        "running/Lobby-1/server": "gone",
    }
    for path, text in files.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (root / "templates/Global/Base/server").chmod(0o755)
    return root
