"""The routes, one file a noun: the shapes, the handlers, and the table that names them."""
