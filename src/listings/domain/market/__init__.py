"""Rules of the public market: the terms of its search, and its regions."""
