"""What the service requires of a store and of a rate limiter."""
