"""Authentication with API keys."""

from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed, NotAuthenticated
from rest_framework_api_key.permissions import KeyParser

from shop.models import AccountApiKey


class HeaderKeyParser(KeyParser):
    """Reads the key from either header."""

    keyword = "Bearer"

    def get(self, request):
        """Return the key, or None."""
        return request.META.get("HTTP_X_API_KEY") or self.get_from_authorization(request)


class ApiKeyAuthentication(BaseAuthentication):
    """Uses the account of the key as the user."""

    key_parser = HeaderKeyParser()

    def authenticate(self, request):
        """Return the account and its key."""
        secret = self.key_parser.get(request)
        if not secret:
            raise NotAuthenticated("API key is required")
        prefix, _, _ = secret.partition(".")
        try:
            key = AccountApiKey.objects.select_related("account").get(prefix=prefix, revoked=False)
        except AccountApiKey.DoesNotExist:
            raise AuthenticationFailed("Invalid API key") from None
        if key.has_expired or not key.is_valid(secret):
            raise AuthenticationFailed("Invalid API key")
        return key.account, key

    def authenticate_header(self, _request):
        """Return the WWW-Authenticate header, which turns the error into a 401."""
        return 'Bearer realm="listings"'
