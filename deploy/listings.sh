#!/bin/sh
# Run `listings` with the service's settings, as the service's user.
# Install it as /usr/local/bin/listings and run it as root.
set -a
LISTINGS_OPERATOR=${LISTINGS_OPERATOR:-${SUDO_USER:-root}} # for the log
# shellcheck disable=SC2034  # exported by `set -a`
LISTINGS_DATABASE_URL=sqlite:////var/lib/listings/listings.db
if [ -r /etc/listings/listings.env ]; then
    . /etc/listings/listings.env
fi
exec runuser -u listings -- /opt/listings/bin/listings "$@"
