FROM python:3.11.16-slim-bookworm@sha256:a36c24f9cbdf4fd0f52d67f0823eeac19c2028c637cecc392d97f980d4fec56b AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /source
# hadolint ignore=DL3008  # the compiler is not part of the image
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
# With S3, Stripe or traces: s3, stripe or tracing.
ARG REQUIREMENTS=runtime
COPY requirements/*.txt requirements/
RUN python -m venv --without-pip /opt/listings \
    && python -m pip --python /opt/listings/bin/python install --require-hashes -r "requirements/$REQUIREMENTS.txt" \
    && python -m pip install --require-hashes -r "requirements/$REQUIREMENTS.txt" -r requirements/build.txt
COPY pyproject.toml setup.py README.md LICENSE ./
COPY src src
RUN COMPILE=1 python -m pip wheel --no-build-isolation --no-deps --wheel-dir dist . \
    && python -m pip --python /opt/listings/bin/python install --no-index --no-deps dist/*.whl

FROM python:3.11.16-slim-bookworm@sha256:a36c24f9cbdf4fd0f52d67f0823eeac19c2028c637cecc392d97f980d4fec56b
# The release workflow adds the version, the commit and the address.
LABEL org.opencontainers.image.title="listings-server" \
    org.opencontainers.image.description="A listing management service: JSON API, console for sellers and public market pages." \
    org.opencontainers.image.licenses="MIT" \
    org.opencontainers.image.base.name="docker.io/library/python:3.11.16-slim-bookworm"
# The uid is fixed, so that the next image can use the files in the volume.
RUN useradd --uid 10001 --user-group --no-create-home --home-dir /data --shell /usr/sbin/nologin listings \
    && install -d -o listings -g listings -m 0700 /data
COPY --from=build /opt/listings /opt/listings
ENV PATH=/opt/listings/bin:$PATH \
    LISTINGS_DATABASE_URL=sqlite:////data/listings.db \
    LISTINGS_HOST=0.0.0.0
WORKDIR /data
USER 10001:10001
VOLUME /data
EXPOSE 8000
# /readyz takes a few microseconds; `listings doctor` would read every page of the database.
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import http.client, os, sys; c = http.client.HTTPConnection('127.0.0.1', int(os.environ.get('LISTINGS_PORT') or os.environ.get('PORT') or 8000), timeout=2); c.request('GET', '/readyz'); sys.exit(c.getresponse().status != 200)"]
ENTRYPOINT ["listings"]
CMD ["serve"]
