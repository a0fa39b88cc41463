"""The interfaces that stores and rate limiters implement."""
