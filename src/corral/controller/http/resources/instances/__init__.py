"""Routes of instances: their records, consoles, commands, files, runs and crashes."""
