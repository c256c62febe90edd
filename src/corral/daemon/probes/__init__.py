"""Finding out whether a workload is ready, and how many players it has. What answers is not trusted."""
