"""The controller's memory: the collections of the store, their mirrors, and the ledger that is the one way to change them."""
