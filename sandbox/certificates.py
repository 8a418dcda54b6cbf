"""The sandbox's own certificate authority: one CA, a serving certificate and one client certificate a component.

Everything is made anew for each sandbox, lives in its state folder and is worth nothing outside it.
"""

import ipaddress
from datetime import datetime, timedelta
from pathlib import Path

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_LIFETIME = timedelta(days=365)
_SKEW = timedelta(hours=1)


class Authority(msgspec.Struct, frozen=True, kw_only=True):
    """A certificate authority that can sign."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate


class Client(msgspec.Struct, frozen=True, kw_only=True):
    """Who a client certificate says it is: Kubernetes reads the common name as user, the organization as group."""

    name: str
    user: str
    group: str = ""


# system:masters because set-up must be able to do anything; nodemend's own programs run under ServiceAccounts' tokens.
ADMIN = Client(name="admin", user="sandbox-admin", group="system:masters")
CONTROLLER_MANAGER = Client(name="kube-controller-manager", user="system:kube-controller-manager")
SCHEDULER = Client(name="kube-scheduler", user="system:kube-scheduler")
KWOK = Client(name="kwok", user="sandbox-kwok", group="system:masters")
CLIENTS = (ADMIN, CONTROLLER_MANAGER, SCHEDULER, KWOK)


def write_all(folder: Path, now: datetime) -> None:
    """Write ca.{crt,key}, apiserver.{crt,key}, NAME.{crt,key} of each client, and the ServiceAccounts' sa.{key,pub}."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    authority = new_authority("nodemend-sandbox", now)
    _write(folder / "ca.crt", authority.certificate.public_bytes(serialization.Encoding.PEM))
    _write(folder / "ca.key", _private_pem(authority.key))  # for nodes that join later: `issue_client`
    serving = _builder("kube-apiserver", "", now).add_extension(_server_names(), critical=False)
    _issue(authority, serving, ExtendedKeyUsageOID.SERVER_AUTH, folder / "apiserver")
    for client in CLIENTS:
        _issue_client(authority, client, folder, now)
    # RS256, the algorithm of ServiceAccount tokens that every verifier knows.
    signer = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    _write(folder / "sa.key", _private_pem(signer))
    public = signer.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    _write(folder / "sa.pub", public)


def node_client(name: str) -> Client:
    """Give the client that a kubelet is: the Node authorizer knows it by this user and group."""
    return Client(name=f"node-{name}", user=f"system:node:{name}", group="system:nodes")


def issue_client(folder: Path, client: Client, now: datetime) -> None:
    """Write NAME.{crt,key} of one more client, signed by the authority that `write_all` left in `folder`."""
    key = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise TypeError(f"{folder / 'ca.key'}: not the key that write_all writes")
    certificate = x509.load_pem_x509_certificate((folder / "ca.crt").read_bytes())
    _issue_client(Authority(key=key, certificate=certificate), client, folder, now)


def _issue_client(authority: Authority, client: Client, folder: Path, now: datetime) -> None:
    subject = _builder(client.user, client.group, now)
    _issue(authority, subject, ExtendedKeyUsageOID.CLIENT_AUTH, folder / client.name)


def new_authority(name: str, now: datetime) -> Authority:
    """Make a self-signed authority that may sign certificates but no further authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    certificate = (
        _builder(name, "", now)
        .issuer_name(subject)
        .public_key(key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    return Authority(key=key, certificate=certificate)


def _issue(
    authority: Authority, builder: x509.CertificateBuilder, usage: x509.ObjectIdentifier, path: Path
) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    signer = authority.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    certificate = (
        builder.issuer_name(authority.certificate.subject)
        .public_key(key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(signer), critical=False)
        .sign(authority.key, hashes.SHA256())
    )
    _write(path.with_suffix(".crt"), certificate.public_bytes(serialization.Encoding.PEM))
    _write(path.with_suffix(".key"), _private_pem(key))


def _builder(common_name: str, organization: str, now: datetime) -> x509.CertificateBuilder:
    names = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
    if organization:
        names.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name(names))
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + _LIFETIME)
    )


def _server_names() -> x509.SubjectAlternativeName:
    hosts = ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"]
    addresses = ["127.0.0.1", "10.0.0.1"]  # the second: the first address of the service range
    return x509.SubjectAlternativeName(
        [
            *(x509.DNSName(host) for host in hosts),
            *(x509.IPAddress(ipaddress.ip_address(address)) for address in addresses),
        ]
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _private_pem(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _write(path: Path, content: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(content)
