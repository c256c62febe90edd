"""The command line: one file a noun, over the HTTP API, importing only what a command needs."""
