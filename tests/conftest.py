"""Fixtures of every suite: leak checks and uvloop come from the plugin we ship."""

pytest_plugins = ["corral.testing.pytest_plugin"]
