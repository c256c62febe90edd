"""The template library: archives in, versions kept, archives and files out.

Unpacking, hashing and packing are plain blocking code that works on a file or a batch of contents;
`library` runs it on threads, a few MiB at a time, and keeps contents in the store's blobs. `changes`
decides purely what becomes of a template's record, `collection` drops what no record names any more.
"""
