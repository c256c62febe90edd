"""Users, their roles and sessions: values and rules, without input or output."""
