"""The API of Universe: its paths and shapes, served by the handlers and changes of our own routes."""
