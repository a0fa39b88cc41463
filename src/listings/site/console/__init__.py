"""The console: where sellers have their keys, see their usage, and keep their listings.

Nothing opens it but a session.
"""

from starlette.routing import Route

from listings.site.console import account, activity, keys, listings, overview, plan, sign_in, transfer, usage

ROUTES: list[Route] = [
    *sign_in.ROUTES,
    *overview.ROUTES,
    *keys.ROUTES,
    *usage.ROUTES,
    *plan.ROUTES,
    *listings.ROUTES,
    *transfer.ROUTES,
    *activity.ROUTES,
    *account.ROUTES,
]
