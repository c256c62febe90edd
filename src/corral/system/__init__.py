"""What the machine gives us, behind small ports: time, randomness, files, logs, configuration."""
