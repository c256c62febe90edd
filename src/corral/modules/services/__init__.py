"""What a host offers to its modules: logs, metrics, schedules, events, routes, commands."""
