"""The address of a PostgreSQL database, as libpq has it."""

import re
from urllib.parse import parse_qsl, urlsplit

_SCHEMES = ("postgresql", "postgres")
_PLACE = re.compile(r"(?:[^\[\]:@/]*|\[[0-9A-Fa-f:.%]+\])(?::(\d{0,5}))?")
_LARGEST_PORT = 65_535
_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
_PARAMETERS = {
    "database", "dbname", "host", "krbsrvname", "passfile", "password", "port", "service", "servicefile", "sslcert",
    "sslcrl", "sslkey", "sslmode", "sslpassword", "sslrootcert", "target_session_attrs", "user",
}  # fmt: skip
_FAULT = "must be like postgresql://listings:PASSWORD@db.example:5432/listings?sslmode=verify-full"


class PostgresUrl(str):
    """An address that was looked at. It may hold a password: `shown` is for eyes."""

    __slots__ = ()

    @property
    def shown(self) -> str:
        """The address without user, password and parameters."""
        parts = urlsplit(self)
        place = parts.netloc.rpartition("@")[2] or dict(parse_qsl(parts.query)).get("host", "")
        return f"postgresql://{place}{parts.path}"


def is_postgres(text: str) -> bool:
    """Whether an address is meant for PostgreSQL."""
    return text.partition("://")[0] in _SCHEMES


def parse(text: str) -> PostgresUrl:
    """Raises ValueError with a sentence that begins with "must"."""
    try:
        parts = urlsplit(text)
        parameters = dict(parse_qsl(parts.query, strict_parsing=bool(parts.query)))
        places = [_PLACE.fullmatch(place) for place in parts.netloc.rpartition("@")[2].split(",")]
    except ValueError:
        raise ValueError(_FAULT) from None
    if parts.scheme not in _SCHEMES or not (parts.netloc or parameters):
        raise ValueError(_FAULT)
    if not all(place and int(place[1] or 0) <= _LARGEST_PORT for place in places):
        raise ValueError(_FAULT)
    if not (parts.path.strip("/") or parameters.keys() & {"dbname", "database"}):
        raise ValueError("must name a database, " + _FAULT.removeprefix("must be "))
    if unknown := parameters.keys() - _PARAMETERS:
        raise ValueError(f"must not have the parameter {min(unknown)[:30]}, which means nothing here")
    if parameters.get("sslmode", "prefer") not in _MODES:
        raise ValueError(f"must have as sslmode one of {', '.join(_MODES)}")
    return PostgresUrl(text)
