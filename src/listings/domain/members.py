"""Sessions and attempts of members."""

from typing import NamedTuple

import msgspec


class NewSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session to be stored.

    `digest` is the SHA-256 of the session token. `handle` is the public id with which the owner can end the session.
    `agent` describes the browser.
    """

    digest: bytes
    handle: str
    csrf_secret: str
    created_at: int
    agent: str


class Session(msgspec.Struct, frozen=True):
    """A stored session. Times are Unix times in seconds.

    `seen_at` may lag by a minute. `confirmed_at` is the last time that the owner entered the password.
    """

    account_id: int
    handle: str
    csrf_secret: str
    created_at: int
    seen_at: int
    confirmed_at: int
    agent: str


class SessionCutoffs(NamedTuple):
    """A session has expired if it was last seen, or created, before these Unix times in seconds."""

    seen_at: int
    created_at: int


class AttemptLimit(NamedTuple):
    """At most `max_attempts` in `seconds`. `subject` is the SHA-256 hash of a network, an account and the like."""

    subject: bytes
    max_attempts: int
    seconds: int


class Operator(NamedTuple):
    """An account whose owner is an operator.

    `secret` is that of the second factor, in base32. `last_step` is the last time step whose code was used, in half
    minutes since 1970, and `added_at` the Unix time of the secret in seconds.
    """

    account_id: int
    secret: str
    last_step: int
    added_at: int
