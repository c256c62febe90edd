"""What host and module process send each other: frames, message bodies, and their limits. Private to Corral."""
