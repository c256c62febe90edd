"""Commands of the command line that are run for callers of the API."""
