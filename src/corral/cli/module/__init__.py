"""`corral module`: the verbs of operators and of authors."""
