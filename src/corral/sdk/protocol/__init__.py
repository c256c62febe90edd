"""Protocol between host and module process: frames, message bodies, and their limits. Private to Corral."""
