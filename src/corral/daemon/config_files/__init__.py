"""Edits of configuration files of workloads: a patch changes what it names and leaves every other byte."""
