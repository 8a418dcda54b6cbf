"""The sandbox's certificates chain to its own authority and are readable by their owner only."""

import ipaddress
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509 import verification

from sandbox import certificates

NOW = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pki")
    certificates.write_all(folder, NOW)
    return folder


def _load(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def test_the_serving_certificate_is_valid_for_the_loopback_address(pki: Path) -> None:
    """A client that trusts only our authority accepts the API server at 127.0.0.1."""
    store = verification.Store([_load(pki / "ca.crt")])
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    verifier = verification.PolicyBuilder().store(store).time(NOW).build_server_verifier(address)

    chain = verifier.verify(_load(pki / "apiserver.crt"), [])

    assert len(chain) == 2


@pytest.mark.parametrize(
    "client", certificates.CLIENTS, ids=lambda client: f"the certificate of {client.name}"
)
def test_a_client_certificate_carries_user_and_group(pki: Path, client: certificates.Client) -> None:
    """Kubernetes reads the user from the common name and the group from the organization."""
    certificate = _load(pki / f"{client.name}.crt")
    organization = f",O={client.group}" if client.group else ""

    assert f"CN={client.user}{organization}" == ",".join(
        attribute.rfc4514_string() for attribute in certificate.subject
    )
    certificate.verify_directly_issued_by(_load(pki / "ca.crt"))


def test_nothing_is_readable_by_others(pki: Path) -> None:
    """Private keys are for their owner alone."""
    assert {0o600} == {path.stat().st_mode & 0o777 for path in pki.iterdir()}
