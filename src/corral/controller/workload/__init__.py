"""Reports of workloads about themselves, and the tokens that authenticate them."""
