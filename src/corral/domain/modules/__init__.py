"""Modules as values: manifest, records, phases, decisions, capabilities, and the documents that they store."""
