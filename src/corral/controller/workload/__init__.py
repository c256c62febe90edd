"""What workloads say about themselves, and the tokens by which they are believed."""
