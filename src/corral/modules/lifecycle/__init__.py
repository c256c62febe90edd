"""Module engine: the lifecycle of every module from installation to removal, with upgrades and restarts."""
