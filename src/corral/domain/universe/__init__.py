"""Universe's files as Corral's: its configurations as group documents, its settings as ours."""
