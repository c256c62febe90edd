"""Writers, their FIFOs, and pumps that are killed all the time. A program of its own, so that the forks
happen in a process without threads. Prints what became of the lines, as JSON.

Usage: kill_arena.py SOURCE_ROOT DIRECTORY MODE WRITERS KILLS, MODE being `pump` or `copy`, the latter a
pump that reads and then writes, to show that this arena notices what it is made to notice.
"""

import json
import os
import pathlib
import random
import select
import signal
import sys
import time

sys.path.insert(0, sys.argv[1])
from corral.runtimes.keeper.console_layout import first_offsets, segment_name
from corral.runtimes.keeper.console_pump import Pump

DIRECTORY, MODE, WRITERS, KILLS = sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
SEGMENT_BYTES = 500_000


def fork(child):
    pid = os.fork()
    if pid:
        return pid
    try:
        child()
    finally:
        os._exit(1)
    return 0


def write(number):
    """Numbered lines until told to stop, then a last one."""
    stopping = []
    signal.signal(signal.SIGTERM, lambda *_: stopping.append(1))
    out = os.open(f"{DIRECTORY}/{number}.fifo", os.O_RDWR)
    line = 0
    while not stopping:
        os.write(out, b"%d %08d %s\n" % (number, line, b"x" * (line % 97)))
        line += 1
    os.write(out, b"%d %08d end\n" % (number, line))
    os._exit(0)


def pump(number):
    source = os.open(f"{DIRECTORY}/{number}.fifo", os.O_RDONLY | os.O_NONBLOCK)
    poll = select.poll()
    poll.register(source, select.POLLIN)
    if MODE == "copy":
        log = os.open(f"{DIRECTORY}/{number}/{segment_name(0)}", os.O_WRONLY | os.O_CREAT, 0o600)
        os.lseek(log, 0, os.SEEK_END)
        while poll.poll():
            os.write(log, os.read(source, 65536))
    moving = Pump(f"{DIRECTORY}/{number}", source, segment_bytes=SEGMENT_BYTES, quota_bytes=0)
    while poll.poll():
        moving.move()


def stored(number):
    directory = f"{DIRECTORY}/{number}"
    for first in first_offsets(os.listdir(directory)):
        yield first, pathlib.Path(directory, segment_name(first)).read_bytes()


def judge(number, result):
    """Every line once and in order, and every segment where its name says."""
    data = b""
    for first, content in stored(number):
        result["misplaced"] += first != len(data)
        data += content
    lines = data.split(b"\n")
    expected = 0
    for line in lines[:-1]:
        fields = line.split(b" ")
        if len(fields) != 3 or fields[0] != b"%d" % number or not fields[1].isdigit():
            result["torn"] += 1
            continue
        result["doubled"] += int(fields[1]) < expected
        result["lost"] += max(0, int(fields[1]) - expected)
        expected = int(fields[1]) + 1
    result["lines"] += expected
    result["unfinished"] += not data.endswith(b" end\n")


def finished(number):
    firsts = first_offsets(os.listdir(f"{DIRECTORY}/{number}"))
    with pathlib.Path(DIRECTORY, str(number), segment_name(firsts[-1])).open("rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - 5))
        return file.read() == b" end\n"


def main():
    chance = random.Random(7)
    numbers = range(WRITERS)
    for number in numbers:
        os.mkfifo(f"{DIRECTORY}/{number}.fifo")
        pathlib.Path(DIRECTORY, str(number)).mkdir()
    writers = [fork(lambda n=n: write(n)) for n in numbers]
    pumps = [fork(lambda n=n: pump(n)) for n in numbers]
    for _ in range(KILLS):
        time.sleep(chance.random() * 0.002)
        victim = chance.randrange(WRITERS)
        os.kill(pumps[victim], signal.SIGKILL)
        os.waitpid(pumps[victim], 0)
        pumps[victim] = fork(lambda n=victim: pump(n))
    for writer in writers:
        os.kill(writer, signal.SIGTERM)
        os.waitpid(writer, 0)
    patience = time.monotonic() + 20
    while not all(finished(n) for n in numbers) and time.monotonic() < patience:
        time.sleep(0.01)
    for pid in pumps:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    result = dict.fromkeys(("lines", "lost", "doubled", "torn", "misplaced", "unfinished"), 0)
    for number in numbers:
        judge(number, result)
    print(json.dumps(result))


main()
