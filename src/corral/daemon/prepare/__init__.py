"""From an order to something that can be spawned: the working directory, the command, the environment."""
