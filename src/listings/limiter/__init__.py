"""Rate limiters behind `listings.contract.RateLimiter`."""
