"""Certificates for tests that speak TLS."""

import subprocess
from pathlib import Path


def self_signed(folder: Path, name: str) -> tuple[Path, Path]:
    """A new certificate for a host, which it signs itself, and its key."""
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    made = ["openssl", "req", "-x509", "-nodes", "-days", "2", "-newkey", "ec"]
    made += ["-pkeyopt", "ec_paramgen_curve:prime256v1"]
    about = ["-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name}"]
    subprocess.run([*made, *about, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    return certificate, key
