"""Import and export the listings of an account."""
