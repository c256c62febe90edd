"""The daemon's side of the link: connections, certificate renewal, the spool of unconfirmed reports."""
