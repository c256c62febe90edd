"""The daemon's end of the link: connect, stay connected, lose nothing in between."""
