"""The console of a run on disk: segments, index, gaps; who writes and who reads them."""
