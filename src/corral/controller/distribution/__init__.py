"""Distribution of files to nodes, before and during a start: template versions, artifacts, and queries of
their caches."""
