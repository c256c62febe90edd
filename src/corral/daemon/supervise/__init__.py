"""All instances of this node: supervised, adopted after a restart of the daemon, cleaned up when ended."""
