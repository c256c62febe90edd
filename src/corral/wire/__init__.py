"""The wire: generated messages, and what both ends of a stream share."""
