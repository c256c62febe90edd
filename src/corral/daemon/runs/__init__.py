"""One run of an instance: its files, start, readiness, monitoring, stop, exit outcome and reports."""
