"""The pipeline of every request: from the route through admission to the server of its kind."""
