#!/bin/sh
# `listings` with the service's settings, as the service's user. For root, as /usr/local/bin/listings.
set -a
LISTINGS_DATABASE_URL=sqlite:////var/lib/listings/listings.db
if [ -r /etc/listings/listings.env ]; then
    . /etc/listings/listings.env
fi
exec runuser -u listings -- /opt/listings/bin/listings "$@"
