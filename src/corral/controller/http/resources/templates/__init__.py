"""Routes of templates and of the catalog of programs."""
