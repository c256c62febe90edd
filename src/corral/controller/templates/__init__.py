"""The template library: archives in, versions kept, archives and files out.

Unpacking, hashing and packing are plain blocking code that works on a file or a batch of contents; `library`
runs it on threads, a few MiB at a time, and keeps contents in the store's blobs. `template_changes` decides
purely how a template's record changes, `content_gc` drops contents that no record names.
"""
