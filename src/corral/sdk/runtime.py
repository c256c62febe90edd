"""Runtime provider: runs an instance so that it outlives the daemon that started it.

A provider starts a run, finds it again after its own death, sends it input, ends it, and reports how it
ended. It keeps nothing in memory that it cannot find again from the run's directory. The console is not in
this interface: every provider writes the bytes into the run's console FIFO, and they are read from the run's
segments, for every provider alike.

All providers pass one contract suite (`corral.testing.runtime_contract`).
"""

from __future__ import annotations

import enum
from typing import Protocol

import msgspec


class RunLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of a run; 0 means no limit of ours."""

    memory_mb: int = 0
    cpu_cores: float = 0.0
    pids: int = 0
    console_mb: int = 256


class RunSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Everything needed to start one run. Complete: nothing is looked up later."""

    instance_id: str
    incarnation: int
    command: tuple[str, ...]
    environment: dict[str, str]
    """Complete: nothing is inherited."""
    directory: str
    """Absolute working directory; it exists."""
    run_directory: str
    """Absolute; holds the run's own files and its console; made by the caller, mode 0700."""
    run_as: str = ""
    """A user name or number; empty: the daemon's own user."""
    groups: tuple[int, ...] = ()
    """The supplementary groups of `run_as` that it keeps; it has no other ones."""
    stdin: str = "fifo"
    """`fifo`, or `none` for an end of file at once."""
    tty: bool = False
    limits: RunLimits = RunLimits()

    @property
    def run_name(self) -> str:
        """Name of this run among all runs of a node; usable for a file, a cgroup and a systemd unit."""
        return run_name(self.instance_id, self.incarnation)


def run_name(instance_id: str, incarnation: int) -> str:
    return f"{instance_id}.{incarnation}"


class RunHandle(msgspec.Struct, frozen=True, kw_only=True):
    """Data to find a run again. Serialisable; a newer provider reads what an older one wrote."""

    version: int = 1
    runtime: str
    run_name: str
    run_directory: str
    pid: int
    """The main process of the workload."""
    started_at_ms: int
    """Wall clock, for display."""
    started_after_boot_ms: int = 0
    """The same moment by `CLOCK_BOOTTIME`, by which the run's age is counted: its process may have been forked long
    before. 0: unknown."""
    state: dict[str, str | int] = {}
    """The provider's own."""


class RunExit(msgspec.Struct, frozen=True, kw_only=True):
    """How the main process of a run ended."""

    known: bool
    """False: it ended, and its exit status is lost; `reason` is why."""
    code: int = 0
    signal: int = 0
    """The signal that ended it, 0: it exited by itself with `code`."""
    core_dumped: bool = False
    ended_at_ms: int = 0
    seen: bool = True
    """False: the end was not observed, and `ended_at_ms` is when it was found."""
    oom_killed: bool = False
    host_rebooted: bool = False
    reason: str = ""


class AdoptionKind(enum.StrEnum):
    ALIVE = "alive"
    """Some process of the run exists; the handle is valid. `exit` is set when its main process has ended and
    only others of the run are left."""
    ENDED = "ended"
    """No process of it is left; `exit` is how it ended."""
    NEVER_STARTED = "never_started"
    """Its workload was never executed and never will be: it may be started (again)."""


class Adoption(msgspec.Struct, frozen=True, kw_only=True):
    kind: AdoptionKind
    handle: RunHandle | None = None
    exit: RunExit | None = None
    reason: str = ""
    """What is unusual about a run that is alive, for display."""


class Execution(msgspec.Struct, frozen=True, kw_only=True):
    """How a program that was executed beside a workload ended."""

    code: int
    """Its exit code; 128 and more for a signal, as in shells."""
    output: str = ""
    """The end of its output, at most 4 KiB."""


class SideRun(msgspec.Struct, frozen=True, kw_only=True):
    """A program that stays beside a workload."""

    name: str
    command: tuple[str, ...]
    pid: int
    started_at_ms: int
    """Wall clock, for display."""
    running: bool
    exit: RunExit | None = None
    """How it ended, once none of its descendants is left; None while it runs."""
    output: str = ""
    """The end of its output, at most 4 KiB, a moment old at most."""


class RunStats(msgspec.Struct, frozen=True, kw_only=True):
    processes: int
    memory_bytes: int
    cpu_seconds: float


class RuntimeCapabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What this node supports, tested and not assumed."""

    kill_tree: bool
    """Ends every descendant, whatever it does to escape."""
    freeze: bool
    memory_limit: bool
    cpu_limit: bool
    tty: bool
    run_as: bool

    def names(self) -> tuple[str, ...]:
        """Names as the node reports them and placement requires them."""
        pairs = {
            "cgroup-kill": self.kill_tree,
            "cgroup-freeze": self.freeze,
            "memory-limit": self.memory_limit,
            "cpu-limit": self.cpu_limit,
            "tty": self.tty,
            "run-as": self.run_as,
        }
        return tuple(name for name, holds in pairs.items() if holds)


class RuntimeProvider(Protocol):
    """Starts and supervises runs. Every method may be called again after the provider's host was killed.

    Errors are `corral.errors.CorralError`s: `Rejected` when the same call would fail again
    (COMMAND_NOT_FOUND, NOT_EXECUTABLE, BAD_FORMAT, ARGUMENTS_TOO_LONG, RUN_AS_REFUSED,
    DIRECTORY_REFUSED), `Retryable` otherwise.
    """

    name: str

    def capabilities(self) -> RuntimeCapabilities: ...

    async def start(self, spec: RunSpec) -> RunHandle:
        """Start the workload; returns once its program is executing. Not idempotent by itself: the
        caller calls `adopt` first. On an error nothing of the run exists. Killed at any point, `adopt`
        later finds either the one process or NEVER_STARTED."""

    async def adopt(self, run_directory: str) -> Adoption:
        """The outcome of the run whose files are in this directory. Idempotent. May wait for a start that was
        under way when the last daemon died."""

    async def send_command(self, handle: RunHandle, line: str) -> None:
        """Write one line to the run's input; returns when it was accepted there. INPUT_NOT_READ when the
        workload does not read (with the number of unread bytes), INPUT_CLOSED when it has no input any more,
        INVALID_FIELD for more than 4,095 bytes or a line break. Nothing is sent then."""

    async def signal(self, handle: RunHandle, number: int) -> None:
        """Send a signal to every process of the workload; a frozen one is thawed first. No effect when none
        is left."""

    async def kill(self, handle: RunHandle) -> None:
        """SIGKILL to every process of the workload, descendants that hide included. Never waits for a lock;
        returns when the signal was sent. `wait_empty` returns when nothing is left."""

    async def wait_exit(self, handle: RunHandle) -> RunExit:
        """Wait until the main process has ended, as reported by the kernel and not by polling."""

    async def wait_empty(self, handle: RunHandle) -> RunExit:
        """Wait until nothing of the run is left, its console complete on disk; then its resources (cgroup,
        descriptors) are released."""

    async def stats(self, handle: RunHandle) -> RunStats: ...

    async def processes(self, handle: RunHandle) -> tuple[int, ...] | None:
        """The pids of all processes of the workload, a moment old, as in this node's /proc; empty when none
        is left. None: they cannot be seen from this node, because they run on another machine."""

    async def execute(self, handle: RunHandle, command: tuple[str, ...], *, timeout: float) -> Execution:
        """Run a program beside the workload, with its user, directory, environment and limits, and wait
        for it. TIMEOUT when it takes longer; then, and when the run ends, it is killed with all it
        started. The errors of `start` when it cannot be executed; NOT_RUNNING when the run has ended."""

    async def spawn_beside(
        self, handle: RunHandle, name: str, command: tuple[str, ...], environment: dict[str, str]
    ) -> SideRun:
        """Start a program that stays beside the workload, with its user, directory, environment (and
        additions to it) and limits; returns once it is executing. It outlives the provider's host, and ends
        with the run's main process: terminated, and killed two seconds later with all its descendants;
        `wait_empty` waits for that. Its end does not affect the run. Idempotent by name while one of that
        name runs; one that has ended is replaced. A name is lower case letters, digits, `-` and `.`; a run
        has at most eight that run (CONFLICT). The errors of `start` when it cannot be executed; NOT_RUNNING
        when the run has ended, NOT_SUPPORTED where a runtime has none."""

    async def list_beside(self, handle: RunHandle) -> tuple[SideRun, ...]:
        """Programs that run and the last of each name that ended (of many the latest), by name; as long as
        the run's directory exists."""

    async def stop_beside(self, handle: RunHandle, name: str, *, grace: float) -> SideRun | None:
        """SIGTERM, and SIGKILL after `grace` seconds, to it and all its descendants; returns when none is
        left. None when there was never one of that name. Idempotent. TIMEOUT when a process does not end."""

    async def set_frozen(self, handle: RunHandle, frozen: bool) -> None:
        """Freeze or thaw the workload; NOT_SUPPORTED where the node cannot."""
