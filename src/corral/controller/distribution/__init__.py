"""What nodes are given ahead of a start and during it: template versions, artifacts, and word of their caches."""
