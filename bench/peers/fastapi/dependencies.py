"""Dependencies: the API key, the rate limit, the plan."""

import hashlib
import os
import time
from collections import defaultdict, deque
from typing import Annotated

from database import get_session
from fastapi import Depends, HTTPException, Security
from fastapi.security import APIKeyHeader, HTTPAuthorizationCredentials, HTTPBearer
from models import Account, ApiKey, utc_now
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import joinedload

RATE_LIMIT = 1000
RATE_WINDOW = float(os.environ.get("RATE_WINDOW", "3600"))

api_key_header = APIKeyHeader(name="X-API-Key", auto_error=False)
bearer = HTTPBearer(auto_error=False)
accepted: dict[int, deque[float]] = defaultdict(deque)

Session = Annotated[AsyncSession, Depends(get_session)]


def get_secret(
    key: Annotated[str | None, Security(api_key_header)],
    token: Annotated[HTTPAuthorizationCredentials | None, Security(bearer)],
) -> str:
    """Return the key from either header."""
    secret = key or (token.credentials if token else None)
    if not secret:
        raise HTTPException(401, "API key is required")
    return secret


def check_rate(key_id: int) -> None:
    """Reject the request if 1,000 were accepted in the window before it."""
    now = time.monotonic()
    times = accepted[key_id]
    while times and times[0] <= now - RATE_WINDOW:
        times.popleft()
    if len(times) >= RATE_LIMIT:
        raise HTTPException(429, "Rate limit exceeded", {"Retry-After": str(int(times[0] + RATE_WINDOW - now) + 1)})
    times.append(now)


async def get_account(session: Session, secret: Annotated[str, Depends(get_secret)]) -> Account:
    """Return the caller's account. Raise a 403 error if its plan has expired."""
    key_hash = hashlib.sha256(secret.encode()).hexdigest()
    key = await session.scalar(
        select(ApiKey)
        .options(joinedload(ApiKey.account))
        .where(ApiKey.key_hash == key_hash, ApiKey.revoked_at.is_(None))
    )
    if key is None:
        raise HTTPException(401, "Invalid API key")
    check_rate(key.id)
    plan_expires_at = key.account.plan_expires_at
    if plan_expires_at is None or plan_expires_at <= utc_now():
        raise HTTPException(403, "Business plan expired")
    return key.account


CurrentAccount = Annotated[Account, Depends(get_account)]
