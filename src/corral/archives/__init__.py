"""Archives from outside, read strictly: zip and tar, with one set of limits and one list of refusals.

Nothing here unpacks to a place that an archive names. Readers give entries with checked kinds and sizes and
the blocks of their contents; who uses them says which limits hold and how a refusal is worded.
"""
