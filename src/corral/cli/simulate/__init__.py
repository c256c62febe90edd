"""`corral simulate`: scenarios run in virtual time, and recorded from a cluster."""
