"""Rules of the public market: how texts and searches are split into terms, and the names of regions."""
