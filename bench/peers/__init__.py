"""The service beside what its users would pick instead: `make bench-peers`. docs/performance.md tells how."""
