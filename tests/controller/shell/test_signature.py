"""controller.signature: what the public verifier accepts, and secrets that cannot sign refused by name."""

import base64
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from controller.signature import SecretProblem, headers, read_secrets
from tests.controller.shell.samples import SECRET, secret_file

OTHER = "whsec_" + base64.b64encode(b"o" * 24).decode()


def test_the_public_verifier_accepts_our_signature(tmp_path: Path) -> None:
    """The package of the specification's own authors judges."""
    body = '{"a": "ä"}'.encode()
    signed = headers(read_secrets(secret_file(tmp_path)), message_id="m1", at=datetime.now(UTC), body=body)
    assert Webhook(SECRET).verify(body, dict(signed)) == {"a": "ä"}


def test_during_a_change_of_secret_old_and_new_are_accepted(tmp_path: Path) -> None:
    """One signature for each secret, so that the receiver may change whenever it likes."""
    keys = read_secrets(secret_file(tmp_path, OTHER, SECRET))
    signed = dict(headers(keys, message_id="m1", at=datetime.now(UTC), body=b"{}"))
    for secret in (SECRET, OTHER):
        assert Webhook(secret).verify(b"{}", signed) == {}


@pytest.mark.parametrize(
    ("body", "shift"),
    [
        pytest.param(b'{"a": 2}', timedelta(0), id="another body"),
        pytest.param(b'{"a": 1}', timedelta(minutes=-6), id="an old try sent again"),
    ],
)
def test_what_was_changed_or_repeated_is_not_accepted(body: bytes, shift: timedelta, tmp_path: Path) -> None:
    """Body and time are inside the signature."""
    keys = read_secrets(secret_file(tmp_path))
    signed = headers(keys, message_id="m1", at=datetime.now(UTC) + shift, body=b'{"a": 1}')
    with pytest.raises(WebhookVerificationError):
        Webhook(SECRET).verify(body, dict(signed))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param("", "must hold 1 to 4 secrets", id="an empty file"),
        pytest.param("hunter2hunter2", "line 1 does not start with whsec_", id="no prefix"),
        pytest.param("whsec_!!!", "line 1 is not base64", id="no base64"),
        pytest.param(
            "whsec_" + base64.b64encode(b"x" * 23).decode(), "line 1 holds 23 bytes", id="too short a key"
        ),
        pytest.param(
            "whsec_" + base64.b64encode(b"x" * 65).decode(), "line 1 holds 65 bytes", id="too long a key"
        ),
        pytest.param("\n".join([SECRET] * 5), "must hold 1 to 4 secrets", id="too many secrets"),
        pytest.param("ä", "it is not ASCII", id="no ASCII"),
    ],
)
def test_a_secret_that_cannot_sign_is_named_but_never_shown(
    content: str, expected: str, tmp_path: Path
) -> None:
    """The problem tells the file and the line, and nothing that stands in it."""
    path = secret_file(tmp_path, content)
    with pytest.raises(SecretProblem, match=expected) as raised:
        read_secrets(path)
    assert "hunter2" not in str(raised.value)
