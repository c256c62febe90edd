"""The working directory of an instance and the prepared start: files fetched, laid out, filled in, put in place."""
