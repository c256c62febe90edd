"""Routes of groups: their documents, and what is ordered of all instances of one."""
