"""One small server a kind of route; `choice` picks it when the table of routes is made."""
