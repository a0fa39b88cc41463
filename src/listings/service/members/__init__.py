"""What members do in the console: sign in, invite, change their password and account, and manage their keys."""
