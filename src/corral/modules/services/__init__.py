"""Services of a host for its modules: logs, metrics, schedules, events, routes, commands."""
