"""Compares the service with programs on other stacks: `make bench-peers`. docs/benchmarks.md describes the method."""
