"""Statistics of groups, counted from the events of their instances."""
