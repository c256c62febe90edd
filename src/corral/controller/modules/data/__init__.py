"""What modules store: documents with indexes, and keys with values; on the store or on Valkey."""
