"""What each type of event means and what its data holds: one typed schema a type, by family."""
