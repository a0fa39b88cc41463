"""Values and rules of listings, accounts and keys; imports no other package of Listings."""
