"""The console's pages of listings: search, bulk changes, and the form of a listing."""
