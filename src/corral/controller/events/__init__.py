"""Events on their way out: one ring of encoded events, read by everybody with a cursor."""
