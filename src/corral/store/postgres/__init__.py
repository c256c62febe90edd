"""The cluster's store: one PostgreSQL database for any number of controllers, one of which writes."""
