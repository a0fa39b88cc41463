"""Certificates for tests that speak TLS."""

import subprocess
from pathlib import Path


def create_certificate(folder: Path, name: str) -> tuple[Path, Path]:
    """Create a self-signed certificate for a host; return the paths of the certificate and of the key."""
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    options = ["openssl", "req", "-x509", "-nodes", "-days", "2", "-newkey", "ec"]
    options += ["-pkeyopt", "ec_paramgen_curve:prime256v1"]
    subject = ["-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name}"]
    subprocess.run([*options, *subject, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    return certificate, key
