"""Every run on this node: started, watched, stopped, and found again after the daemon's own death."""
