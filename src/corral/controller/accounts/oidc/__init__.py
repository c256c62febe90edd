"""Logins with a provider of OpenID Connect: what it is asked, what it answers, and what is believed of that."""
