"""The routes of the console."""

from starlette.routing import Route

from listings.site.console import account, activity, keys, messages, overview, pictures, plan, sign_in, transfer, usage
from listings.site.console.history import listing, undo
from listings.site.console.listings import edit, table

ROUTES: list[Route] = [
    *sign_in.ROUTES,
    *overview.ROUTES,
    *messages.ROUTES,
    *keys.ROUTES,
    *usage.ROUTES,
    *plan.ROUTES,
    *table.ROUTES,
    *edit.ROUTES,
    *pictures.ROUTES,
    *transfer.ROUTES,
    *activity.ROUTES,
    *undo.ROUTES,
    *listing.ROUTES,
    *account.ROUTES,
]
