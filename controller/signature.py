"""Signatures of Standard Webhooks (standardwebhooks.com, specification 1.0.0): HMAC-SHA256 over `id.timestamp.body`.

A secret file holds one `whsec_` secret a line. The first line is today's; further ones are old secrets that still sign, so
that a receiver can change over without a lost page: `webhook-signature` then carries one signature for each.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

PREFIX = "whsec_"
SHORTEST, LONGEST = 24, 64  # bytes of key, as the specification says
MOST_SECRETS = 4
_LARGEST_FILE = 4096


class SecretProblem(Exception):
    """A secret file cannot sign; the text never holds any of its content."""


def read_secrets(path: Path) -> tuple[bytes, ...]:
    """Read the keys of a secret file, today's first. Raises SecretProblem, naming the file and what would be right."""
    if not path.name:
        raise SecretProblem("no file is given; name a file that holds a whsec_ secret")
    try:
        with path.open("rb") as file:
            raw = file.read(_LARGEST_FILE + 1)
        text = raw.decode("ascii")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not ASCII"
        raise SecretProblem(f"{path} cannot be read: {why}") from None
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines or len(lines) > MOST_SECRETS or len(raw) > _LARGEST_FILE:
        raise SecretProblem(f"{path} must hold 1 to {MOST_SECRETS} secrets, one a line")
    return tuple(_key(line, f"{path} line {number}") for number, line in enumerate(lines, start=1))


def _key(line: str, where: str) -> bytes:
    right = f"{PREFIX} and the base64 of {SHORTEST} to {LONGEST} random bytes"
    if not line.startswith(PREFIX):
        raise SecretProblem(f"{where} does not start with {PREFIX}: write {right}")
    encoded = line.removeprefix(PREFIX)
    try:
        key = base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
    except binascii.Error:
        raise SecretProblem(f"{where} is not base64 after {PREFIX}: write {right}") from None
    if not SHORTEST <= len(key) <= LONGEST:
        raise SecretProblem(f"{where} holds {len(key)} bytes: write {right}")
    return key


def headers(keys: Sequence[bytes], *, message_id: str, at: datetime, body: bytes) -> Mapping[str, str]:
    """Sign one try at `at`; `message_id` stays the same over all tries and is the receiver's idempotency key."""
    timestamp = str(int(at.timestamp()))
    signed = b".".join((message_id.encode(), timestamp.encode(), body))
    signatures = [base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode() for key in keys]
    return {
        "webhook-id": message_id,
        "webhook-timestamp": timestamp,
        "webhook-signature": " ".join(f"v1,{signature}" for signature in signatures),
    }
