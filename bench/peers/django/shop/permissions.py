"""Permissions."""

from rest_framework.permissions import BasePermission


class HasCurrentPlan(BasePermission):
    """Requires a Business plan that has not expired."""

    message = "Business plan expired"

    def has_permission(self, request, _view):
        """Return whether the plan is active."""
        return request.user.has_current_plan


class IsOwner(BasePermission):
    """Requires a listing of the caller."""

    message = "This listing belongs to another account"

    def has_object_permission(self, request, _view, listing):
        """Return whether the caller owns the listing."""
        return listing.account_id == request.user.pk
