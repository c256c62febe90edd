"""`corral doctor`: checks of this machine, of a controller on it and of groups in files. They change nothing."""
