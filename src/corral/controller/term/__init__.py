"""Leading: the leadership loop, what is built for one term of it, and what a controller needs before it leads."""
