"""Fill a new database with what a database of Listings holds: `DATABASE=new.db python manage.py load listings.db`.

Prints the new keys by account, as JSON: the library for keys has a format of its own.
"""

import datetime as dt
import json
import sqlite3

from django.core.management.base import BaseCommand
from django.db import transaction

from shop.models import Account, AccountApiKey, Listing

COPIED = "id account_id title content type category price_type location region district latitude longitude view_count"


def moment(seconds):
    """A time in UTC out of seconds since 1970."""
    return None if seconds is None else dt.datetime.fromtimestamp(seconds, dt.UTC)


def instant(text):
    """A time in UTC out of its text."""
    return dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC)


def listing_of(row):
    """The listing of a row."""
    return Listing(
        **{name: row[name] for name in COPIED.split()},
        images=json.loads(row["images"]),
        price=row["price_cents"] / 100,
        is_active=bool(row["is_active"]),
        created_at=instant(row["created_at"]),
        updated_at=instant(row["updated_at"]),
        deleted_at=moment(row["deleted_at"]),
    )


class Command(BaseCommand):
    """The command."""

    help = "Fill a new database with what a database of Listings holds."

    def add_arguments(self, parser):
        """The database of Listings."""
        parser.add_argument("source")

    @transaction.atomic
    def handle(self, *_args, source, **_options):
        """Copy accounts and listings, make keys."""
        database = sqlite3.connect(f"file:{source}?mode=ro", uri=True)
        database.row_factory = sqlite3.Row
        secrets = {}
        for row in database.execute("SELECT id, name, email, plan_expires_at FROM accounts"):
            account = Account.objects.create(**{**row, "plan_expires_at": moment(row["plan_expires_at"])})
            _, secrets[account.pk] = AccountApiKey.objects.create_key(name="bench", account=account)
        listings = [listing_of(row) for row in database.execute("SELECT * FROM listings")]
        Listing.objects.bulk_create(listings, batch_size=500)
        self.stdout.write(json.dumps(secrets))
