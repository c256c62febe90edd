"""The interactive shell over all commands."""
