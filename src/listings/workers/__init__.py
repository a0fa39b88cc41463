"""Several worker processes on one machine, and their supervisor."""
