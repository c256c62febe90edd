"""The cache of this node: templates, artifacts and first-run results, and how they are fetched."""
