"""Serializers of requests and responses."""

from rest_framework import serializers

from shop.models import Listing


class ListingSerializer(serializers.ModelSerializer):
    """A listing."""

    images = serializers.ListField(
        child=serializers.CharField(max_length=2048), max_length=50, required=False, default=list
    )

    class Meta:
        model = Listing
        fields = [
            "id",
            "title",
            "content",
            "type",
            "category",
            "images",
            "price",
            "price_type",
            "location",
            "region",
            "is_active",
            "view_count",
            "created_at",
            "updated_at",
        ]
        read_only_fields = ["id", "view_count", "created_at", "updated_at"]


class NewListingSerializer(ListingSerializer):
    """A new listing, including the fields that responses do not contain."""

    class Meta(ListingSerializer.Meta):
        fields = [*ListingSerializer.Meta.fields, "district", "latitude", "longitude"]
