"""The module engine: every module from its installation to its removal, upgrades and restarts included."""
