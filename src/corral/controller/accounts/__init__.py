"""Accounts: users, sessions, logins, and how people prove who they are."""
