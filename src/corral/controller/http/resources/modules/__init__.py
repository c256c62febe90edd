"""Routes of modules: packages, verbs, states on nodes, capabilities, pages."""
