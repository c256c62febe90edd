"""Accounts: users, sessions, logins."""
