"""The store: authoritative documents, the event log, journals, leases and blobs.

`port` is the interface of a store; `writer` turns many callers into one fenced, grouped commit; `sqlite` and
`postgres` are its two adapters, held to one contract suite.
"""
