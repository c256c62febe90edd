"""The catalog of programs: what may be stored in it and taken out."""
