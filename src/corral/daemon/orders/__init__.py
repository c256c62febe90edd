"""Orders about instances: from the controller over the link, and from this machine over the local socket."""
