"""Files from the web: fetched with suspicion, and kept only when they are what was promised."""
