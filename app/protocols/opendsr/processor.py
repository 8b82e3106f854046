"""The processor of OpenDSR: its domain, and the certificate and key that it signs with.

keys/opendsr.pem is the certificate, with its chain, that an authority issued for the domain;
keys/opendsr.key is its RSA key. Every answer carries (OpenDSR sections 4 and 8.3)

    X-OpenDSR-Processor-Domain   the domain
    X-OpenDSR-Signature          base64 of RSA-SHA256 over the raw body
"""

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from app.settings import Settings, SettingsError
from lethe.identity import check_kind

CERTIFICATE, KEY = "opendsr.pem", "opendsr.key"
MIN_BITS = 2048


@dataclass(frozen=True, slots=True)
class Processor:
    """The signer of answers. kinds: of identity, by OpenDSR's identity types."""

    domain: str
    certificate: bytes
    kinds: Mapping[str, str]
    key: RSAPrivateKey

    def headers(self, body: bytes) -> dict[str, str]:
        """Return the headers that an answer with this body carries."""
        signature = self.key.sign(body, PKCS1v15(), SHA256())
        return {
            "X-OpenDSR-Processor-Domain": self.domain,
            "X-OpenDSR-Signature": b64encode(signature).decode(),
        }


def load_processor(settings: Settings) -> Processor | None:
    """Return the processor that the settings describe, None if OpenDSR is off.

    Raises SettingsError if certificate or key is missing, they do not belong together, or the
    certificate is of another domain.
    """
    if not settings.opendsr_domain:
        return None
    try:
        certificate = (settings.keys_dir / CERTIFICATE).read_bytes()
        key = load_pem_private_key((settings.keys_dir / KEY).read_bytes(), None)
        leaf = x509.load_pem_x509_certificates(certificate)[0]
    except (OSError, ValueError, TypeError):
        raise SettingsError(
            f"LETHE_OPENDSR_DOMAIN is set: put the domain's certificate into {CERTIFICATE} and "
            f"its RSA key into {KEY} in {settings.keys_dir}, both in PEM"
        ) from None
    if not isinstance(key, RSAPrivateKey) or key.key_size < MIN_BITS:
        raise SettingsError(f"{KEY} is not an RSA key of at least {MIN_BITS} bits")
    if leaf.public_key() != key.public_key():
        raise SettingsError(f"{KEY} is not the key of the first certificate in {CERTIFICATE}")
    if settings.opendsr_domain not in _domains(leaf):
        raise SettingsError(f"the certificate in {CERTIFICATE} is not of LETHE_OPENDSR_DOMAIN")
    pairs = (part.partition("=") for part in settings.opendsr_identities.split(","))
    kinds = {name: check_kind(kind) for name, _, kind in pairs}
    return Processor(settings.opendsr_domain, certificate, kinds, key)


def _domains(certificate: x509.Certificate) -> list[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return []
    return names.value.get_values_for_type(x509.DNSName)
