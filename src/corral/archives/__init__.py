"""Archives from outside, read strictly: zip and tar, with one set of limits and one list of refusals.

Nothing here unpacks to a place that an archive names. Readers yield entries with checked kinds and sizes and
the blocks of their contents; the caller sets the limits and the wording of refusals.
"""
