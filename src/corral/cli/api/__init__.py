"""The controller's HTTP API from the command line: connection, known controllers, event streams, uploads, downloads."""
