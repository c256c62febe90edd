"""`corral instance`: one file for each family of verbs."""
