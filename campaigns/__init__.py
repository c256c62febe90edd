"""Long campaigns against whole processes, each with a checker of its own; `make soak` runs them."""
