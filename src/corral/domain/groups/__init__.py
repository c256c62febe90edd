"""Groups and their instances as values: documents and their checks, the plan of a start, and the stored records."""
