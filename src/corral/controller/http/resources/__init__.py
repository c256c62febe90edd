"""Routes by noun: the schemas, the handlers, and the table of routes of each."""
