"""The use cases of members in the console: sign in, accept invitations, change passwords and accounts, manage keys."""
