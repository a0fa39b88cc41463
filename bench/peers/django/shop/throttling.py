"""The rate limit."""

import threading

from django.conf import settings
from rest_framework.throttling import SimpleRateThrottle


class ApiKeyThrottle(SimpleRateThrottle):
    """Allows 1,000 requests per key in any hour."""

    rate = "1000/hour"
    _lock = threading.Lock()

    def parse_rate(self, rate):
        """Return the number of requests, and the window from the settings."""
        number, _ = super().parse_rate(rate)
        return number, settings.RATE_WINDOW

    def get_cache_key(self, request, _view):
        """Return the cache key of the API key."""
        return f"throttle_{request.auth.prefix}"

    def allow_request(self, request, view):
        """Check the limit under a lock, so that threads do not overwrite each other's counts."""
        with self._lock:
            return super().allow_request(request, view)
