"""Validate the connection URI of a PostgreSQL database, in the format of libpq."""

import re
from urllib.parse import parse_qsl, urlsplit

SCHEMES = ("postgresql", "postgres")
_HOST_AND_PORT = re.compile(r"(?:[^\[\]:@/]*|\[[0-9A-Fa-f:.%]+\])(?::(\d{0,5}))?")
_MAX_PORT = 65_535
_SSL_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
_PARAMETERS = {
    "database", "dbname", "host", "krbsrvname", "passfile", "password", "port", "service", "servicefile", "sslcert",
    "sslcrl", "sslkey", "sslmode", "sslpassword", "sslrootcert", "target_session_attrs", "user",
}  # fmt: skip
_FORMAT_ERROR = "must be like postgresql://listings:PASSWORD@db.example:5432/listings?sslmode=verify-full"


class PostgresUrl(str):
    """A validated connection URI. It may contain a password: show `redacted` instead."""

    __slots__ = ()

    @property
    def redacted(self) -> str:
        """The URI without its user, password and parameters. Without a host, the value of `host` takes its place."""
        parts = urlsplit(self)
        host = parts.netloc.rpartition("@")[2] or dict(parse_qsl(parts.query)).get("host", "")
        return f"postgresql://{host}{parts.path}"


def parse(text: str) -> PostgresUrl:
    """Return the validated URI. Raises ValueError, whose message begins with "must"."""
    try:
        parts = urlsplit(text)
        parameters = dict(parse_qsl(parts.query, strict_parsing=bool(parts.query)))
        hosts = [_HOST_AND_PORT.fullmatch(host) for host in parts.netloc.rpartition("@")[2].split(",")]
    except ValueError:
        raise ValueError(_FORMAT_ERROR) from None
    if parts.scheme not in SCHEMES or not (parts.netloc or parameters):
        raise ValueError(_FORMAT_ERROR)
    if "@" in parts.path or parts.fragment:  # the password has a "/" or "#" that is not percent-encoded
        raise ValueError(_FORMAT_ERROR)
    if not all(host and int(host[1] or 0) <= _MAX_PORT for host in hosts):
        raise ValueError(_FORMAT_ERROR)
    if not (parts.path.strip("/") or parameters.keys() & {"dbname", "database"}):
        raise ValueError("must name a database, " + _FORMAT_ERROR.removeprefix("must be "))
    if unknown := parameters.keys() - _PARAMETERS:
        raise ValueError(f"must not have the unsupported parameter {min(unknown)[:30]}")
    if parameters.get("sslmode", "prefer") not in _SSL_MODES:
        raise ValueError(f"must have one of {', '.join(_SSL_MODES)} as its sslmode")
    return PostgresUrl(text)
