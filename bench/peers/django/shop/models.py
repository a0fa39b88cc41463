"""The tables."""

from django.db import models
from django.utils import timezone
from rest_framework_api_key.models import AbstractAPIKey


class Account(models.Model):
    """A seller."""

    name = models.CharField(max_length=100)
    email = models.EmailField(unique=True)
    plan_expires_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "accounts"

    @property
    def has_current_plan(self):
        """Return whether the Business plan has not expired."""
        return self.plan_expires_at is not None and self.plan_expires_at > timezone.now()


class AccountApiKey(AbstractAPIKey):
    """A key of a seller."""

    account = models.ForeignKey(Account, on_delete=models.CASCADE, related_name="api_keys")

    class Meta(AbstractAPIKey.Meta):
        db_table = "api_keys"


class Listing(models.Model):
    """A listing."""

    class Type(models.TextChoices):
        """The type of the offer."""

        PRODUCT = "product"
        SERVICE = "service"
        RENTAL = "rental"
        JOB = "job"

    class PriceType(models.TextChoices):
        """The unit of the price."""

        FIXED = "fixed"
        NEGOTIABLE = "negotiable"
        PER_HOUR = "per_hour"
        PER_NIGHT = "per_night"

    account = models.ForeignKey(Account, on_delete=models.CASCADE, related_name="listings", db_index=False)
    title = models.CharField(max_length=255)
    content = models.TextField(max_length=100_000)
    type = models.CharField(max_length=10, choices=Type, default=Type.PRODUCT)
    category = models.CharField(max_length=100, blank=True, default="")
    images = models.JSONField(blank=True, default=list)
    price = models.DecimalField(max_digits=11, decimal_places=2, default=0)
    price_type = models.CharField(max_length=10, choices=PriceType, default=PriceType.FIXED)
    location = models.CharField(max_length=255, blank=True, default="")
    region = models.CharField(max_length=100, blank=True, default="")
    district = models.CharField(max_length=100, blank=True, default="")
    latitude = models.FloatField(null=True, blank=True)
    longitude = models.FloatField(null=True, blank=True)
    is_active = models.BooleanField(default=True)
    view_count = models.PositiveIntegerField(default=0)
    created_at = models.DateTimeField(default=timezone.now)
    updated_at = models.DateTimeField(default=timezone.now)
    deleted_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "listings"
        indexes = [models.Index(fields=["account", "is_active", "-id"], name="listings_active")]
