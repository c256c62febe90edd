"""Runs with a window: `tmux` and `screen`.

The run itself is one of the process runtime: keeper, shim, console, exit and adoption are the same
code. Beside it stands a session of a terminal multiplexer whose only program is a window onto the run:
it shows the console and passes on what is typed. Whatever happens to the session, to its server or to a
client that is attached concerns the window alone.
"""
