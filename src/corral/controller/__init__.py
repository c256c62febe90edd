"""The controller: authoritative state, the daemons' sessions, the HTTP API."""
