"""Storage of modules: documents with indexes, and keys with values; in the store or in Valkey."""
