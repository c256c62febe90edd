"""A site to work on by hand: a controller process, the command line, and a server in Java to run there."""

from __future__ import annotations

import asyncio
import os
import pathlib
import shutil
import subprocess
import sys

from tests.system.estate import Estate

CONTROLLER = {"CORRAL_RECONCILE_OBSERVE_SECONDS": "1"}
DAEMON = {
    "CORRAL_INSTANCES_DEVELOPMENT": "true",
    "CORRAL_INSTANCES_CGROUPS": "none",
    "CORRAL_LINK_STATUS_SECONDS": "0.5",
}
JAVA_SERVER = """
import java.io.*;
import java.net.*;
import java.nio.file.*;
import java.util.*;

public class Server {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        try (Reader reader = Files.newBufferedReader(Path.of("server.properties"))) {
            settings.load(reader);
        }
        int port = Integer.parseInt(settings.getProperty("server-port"));
        System.out.println("motd " + settings.getProperty("motd"));
        System.out.println("heap " + Runtime.getRuntime().maxMemory() / 1048576);
        System.out.println("flavour " + System.getProperty("flavour"));
        System.out.println("arguments " + String.join(" ", arguments));
        ServerSocket listener = new ServerSocket(port, 50, InetAddress.getByName("127.0.0.1"));
        System.out.println("Done! listening on " + port);
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = input.readLine()) != null; ) {
            if (line.equals("stop")) {
                System.out.println("stopping");
                listener.close();
                System.exit(0);
            }
            System.out.println("you said " + line);
        }
    }
}
"""


class Site:
    """An estate with one node, and the command line pointed at it."""

    def __init__(self, estate: Estate) -> None:
        self.estate = estate

    async def call(self, method: str, path: str, body: dict[str, object] | None = None) -> object:
        return await self.estate.call(method, path, body)

    async def corral(self, *arguments: str) -> str:
        environment = {
            **os.environ,
            "CORRAL_URL": f"http://{self.estate.http}",
            "CORRAL_TOKEN": self.estate.token,
        }
        done = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-m", "corral.cli", *arguments],
            env=environment,
            capture_output=True,
            text=True,
            timeout=90,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == 0, (arguments, done.stdout, done.stderr)
        return done.stdout


def compiled_server(place: pathlib.Path) -> pathlib.Path:
    """A small server in a jar, as people get one from elsewhere."""
    (place / "Server.java").write_text(JAVA_SERVER)
    javac, jar = shutil.which("javac"), shutil.which("jar")
    assert javac, "tools/install_test_programs.sh installs a JDK"
    assert jar
    subprocess.run([javac, "Server.java"], cwd=place, check=True)
    subprocess.run([jar, "cfe", "server.jar", "Server", "Server.class"], cwd=place, check=True)
    return place / "server.jar"
