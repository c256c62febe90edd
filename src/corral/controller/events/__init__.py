"""Event delivery: one ring of encoded events, read by all consumers with a cursor each."""
