"""One file a claim; `python -m benchmarks` runs them all and writes `results.json`."""
