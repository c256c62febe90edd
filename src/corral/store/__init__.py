"""The store: authoritative documents, the event log, journals, leases and blobs.

`port` says what a store is; `writer` turns many callers into one fenced, grouped commit;
`sqlite` and `postgres` are its two adapters, held to one contract suite.
"""
