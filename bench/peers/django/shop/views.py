"""The endpoints."""

from rest_framework import mixins, status, viewsets
from rest_framework.response import Response

from shop.models import Listing
from shop.permissions import HasCurrentPlan, IsOwner
from shop.serializers import ListingSerializer, NewListingSerializer


class ListingViewSet(
    mixins.CreateModelMixin, mixins.ListModelMixin, mixins.RetrieveModelMixin, viewsets.GenericViewSet
):
    """A seller's listings."""

    queryset = Listing.objects.filter(deleted_at=None)
    permission_classes = [HasCurrentPlan, IsOwner]

    def get_serializer_class(self):
        """Return the serializer; creates accept more fields than responses contain."""
        return NewListingSerializer if self.action == "create" else ListingSerializer

    def list(self, request, *_args, **_kwargs):
        """Return the caller's active listings, newest first."""
        listings = self.get_queryset().filter(account=request.user, is_active=True).order_by("-id")
        return Response({"listings": self.get_serializer(listings, many=True).data})

    def create(self, request, *_args, **_kwargs):
        """Create a listing."""
        serializer = self.get_serializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        listing = serializer.save(account=request.user)
        return Response({"id": listing.pk, "message": "listing created"}, status=status.HTTP_201_CREATED)
