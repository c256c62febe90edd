"""Module manifests and settings: parsed from text, checked against types and JSON Schema."""
