"""The machine behind small interfaces: time, randomness, files, logs, configuration."""
