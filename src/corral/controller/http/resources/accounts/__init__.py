"""Routes of users, roles and tokens."""
