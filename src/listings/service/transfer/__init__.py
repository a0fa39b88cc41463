"""Import and export of all listings of an account."""
