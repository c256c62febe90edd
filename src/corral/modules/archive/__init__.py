"""Module archives: built from sources, read, checked, stored and unpacked."""
