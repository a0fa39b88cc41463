"""How often a key may call."""

import threading

from django.conf import settings
from rest_framework.throttling import SimpleRateThrottle


class ApiKeyThrottle(SimpleRateThrottle):
    """1000 requests in any hour, for each key."""

    rate = "1000/hour"
    _lock = threading.Lock()

    def parse_rate(self, rate):
        """The number of requests, and the window that the settings give."""
        number, _ = super().parse_rate(rate)
        return number, settings.RATE_WINDOW

    def get_cache_key(self, request, _view):
        """The key's own log."""
        return f"throttle_{request.auth.prefix}"

    def allow_request(self, request, view):
        """Let no other thread read the log before this one has written it."""
        with self._lock:
            return super().allow_request(request, view)
