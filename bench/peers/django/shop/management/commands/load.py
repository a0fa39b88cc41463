"""Copy a database of Listings into a new database: `DATABASE=new.db python manage.py load listings.db`.

Prints the new keys by account as JSON, because the key library has a format of its own.
"""

import datetime as dt
import json
import sqlite3

from django.core.management.base import BaseCommand
from django.db import transaction

from shop.models import Account, AccountApiKey, Listing

COPIED = "id account_id title content type category price_type location region district latitude longitude view_count"


def from_timestamp(seconds):
    """Convert a Unix timestamp to a UTC time."""
    return None if seconds is None else dt.datetime.fromtimestamp(seconds, dt.UTC)


def parse_time(text):
    """Parse a UTC time."""
    return dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC)


def build_listing(row):
    """Build a listing from a row."""
    return Listing(
        **{name: row[name] for name in COPIED.split()},
        images=json.loads(row["images"]),
        price=row["price_cents"] / 100,
        is_active=bool(row["is_active"]),
        created_at=parse_time(row["created_at"]),
        updated_at=parse_time(row["updated_at"]),
        deleted_at=from_timestamp(row["deleted_at"]),
    )


class Command(BaseCommand):
    """Copies a database of Listings."""

    help = "Copy a database of Listings into a new database."

    def add_arguments(self, parser):
        """Add the path of the database of Listings."""
        parser.add_argument("source")

    @transaction.atomic
    def handle(self, *_args, source, **_options):
        """Copy accounts and listings, and create keys."""
        database = sqlite3.connect(f"file:{source}?mode=ro", uri=True)
        database.row_factory = sqlite3.Row
        secrets = {}
        for row in database.execute("SELECT id, name, email, plan_expires_at FROM accounts"):
            account = Account.objects.create(**{**row, "plan_expires_at": from_timestamp(row["plan_expires_at"])})
            _, secrets[account.pk] = AccountApiKey.objects.create_key(name="bench", account=account)
        listings = [build_listing(row) for row in database.execute("SELECT * FROM listings")]
        Listing.objects.bulk_create(listings, batch_size=500)
        self.stdout.write(json.dumps(secrets))
