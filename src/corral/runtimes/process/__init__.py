"""Native processes: a keeper that forks, a shim that minds each run, and the provider over both."""
