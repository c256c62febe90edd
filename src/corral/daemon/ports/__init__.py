"""Which ports of this node are taken: by our own runs, and by anybody else."""
