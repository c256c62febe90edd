"""The console of a run on disk: segments, index, gaps; their readers and the search."""
