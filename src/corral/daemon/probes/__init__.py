"""Readiness probes and player counts. The answers of a workload are not trusted."""
