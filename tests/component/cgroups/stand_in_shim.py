"""In place of a shim: a subreaper that starts what it is told and reaps what it inherits.

Reads lines of JSON `{"files": [...], "argv": [...], "env": {...}}`; each child is moved into the files'
groups before it executes. Answers each with the child's pid, before the child can say anything itself.
"""

import ctypes
import json
import os
import pathlib
import signal
import sys

PR_SET_CHILD_SUBREAPER = 36


def start(order):
    waits, opens = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(opens)
            os.read(waits, 1)
            os.setsid()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.execve(order["argv"][0], order["argv"], order["env"])
        finally:
            os._exit(127)
    for file in order["files"]:
        pathlib.Path(file).write_text(str(pid))
    print(pid, flush=True)
    os.close(waits)
    os.close(opens)


def main():
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps for us
    for line in sys.stdin:
        start(json.loads(line))


main()
