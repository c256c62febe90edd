"""Changes in configuration files of workloads: a patch touches what it names and leaves every other byte."""
