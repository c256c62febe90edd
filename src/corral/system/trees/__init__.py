"""Trees of files that a workload may change meanwhile: opened, walked, read and removed by descriptor alone."""
