"""An installation whose people are known and whose processor has a certificate."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from app.ledger.sequencer import Ledger
from app.settings import Settings
from tests.installation import Installation, install
from tests.workers.jobs.desk.test_people import ready

DOMAIN = "processor.example"
BUSINESS = "A_BUSINESS"


@pytest.fixture(scope="session")
def processor_key() -> RSAPrivateKey:
    return generate_private_key(65537, 2048)


def certificate_of(key: RSAPrivateKey, *domains: str) -> bytes:
    """Return a certificate of some domains; the tests are their own authority."""
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a processor")])
    now = datetime(2026, 1, 1, tzinfo=UTC)
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(now)
        .not_valid_after(now + timedelta(days=3650))
    )
    if domains:
        names = x509.SubjectAlternativeName([x509.DNSName(domain) for domain in domains])
        built = built.add_extension(names, critical=False)
    return built.sign(key, SHA256()).public_bytes(Encoding.PEM)


def write_processor(keys: Path, key: RSAPrivateKey, certificate: bytes | None = None) -> None:
    """Put certificate and key where the service reads them."""
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (keys / "opendsr.key").write_bytes(pem)
    (keys / "opendsr.pem").write_bytes(certificate or certificate_of(key, DOMAIN))


@pytest.fixture
def serving(
    settings: Settings, ledger: Ledger, processor_key: RSAPrivateKey
) -> Iterator[Installation]:
    """A service that speaks the protocols, with a model that knows Ann and Bob."""
    write_processor(settings.keys_dir, processor_key)
    spoken = settings.model_copy(update={"opendsr_domain": DOMAIN, "drp_business_id": BUSINESS})
    with install(spoken) as made:
        ready(made, "one")
        yield made
