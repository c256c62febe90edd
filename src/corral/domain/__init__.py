"""Values, ids, state tables and pure planners: no input or output, no clock, no tasks."""
