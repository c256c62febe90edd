"""Dashboard: the files that browsers get, and the policy they get them with. The routes are in `controller.http`."""
