"""A certificate that only the parts of one stack share."""

import datetime as dt
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from services.embedded.files import write_private

LIFETIME = dt.timedelta(days=3650)
# A clock that is set back a little must not make the certificate one of the future.
MARGIN = dt.timedelta(days=1)


@dataclass(frozen=True)
class Certificate:
    """Where a self-signed certificate and its key lie."""

    certificate: Path
    key: Path


def write_certificate(folder: Path, *, now: dt.datetime) -> Certificate:
    """`folder` holds a fresh self-signed certificate, its own authority, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ghosted-embedded")])
    built = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - MARGIN)
        .not_valid_after(now + LIFETIME)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    files = Certificate(folder / "certificate.pem", folder / "certificate.key")
    write_private(files.certificate, built.public_bytes(serialization.Encoding.PEM).decode())
    write_private(files.key, _key_text(key))
    return files


def _key_text(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
