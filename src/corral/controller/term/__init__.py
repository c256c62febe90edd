"""Leadership: the leadership loop, the services of one term, and what a controller does before it leads."""
