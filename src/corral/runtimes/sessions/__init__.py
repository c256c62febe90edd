"""Runs with a window: `tmux` and `screen`.

The run itself is one of the process runtime: keeper, shim, console, exit and adoption are the same code. In
addition it has a session of a terminal multiplexer whose only program is a window: it shows the console and
passes on the input. The end of the session, its server or an attached client affects the window alone.
"""
