"""Who may what."""

from rest_framework.permissions import BasePermission


class HasCurrentPlan(BasePermission):
    """The Business plan has not expired."""

    message = "Business plan expired"

    def has_permission(self, request, _view):
        """Whether it has not."""
        return request.user.has_current_plan


class IsOwner(BasePermission):
    """The listing is the caller's."""

    message = "This listing belongs to another account"

    def has_object_permission(self, request, _view, listing):
        """Whether it is."""
        return listing.account_id == request.user.pk
