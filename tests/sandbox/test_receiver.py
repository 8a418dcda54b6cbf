"""The local receiver of pages: a real server, asked over real sockets, with a signer that is not ours."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import urllib3
from standardwebhooks.webhooks import Webhook

from sandbox.receiver import HANGS, Answer, Receiver, why_not_genuine

BODY = b'{"specversion": "1.0", "type": "dev.nodemend.remediation.open", "id": "m1"}'


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[Receiver]:
    with Receiver(tmp_path) as running:
        yield running


@pytest.fixture
def client() -> Iterator[urllib3.PoolManager]:
    with urllib3.PoolManager(retries=False) as pool:
        yield pool


def signed(secret_file: Path, body: bytes = BODY, message_id: str = "m1") -> dict[str, str]:
    """Sign as the public library of the specification does."""
    now = datetime.now(UTC)
    webhook = Webhook(secret_file.read_text().strip())
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": webhook.sign(message_id, now, body.decode()),
    }


def test_a_genuine_message_is_kept_with_its_time(receiver: Receiver, client: urllib3.PoolManager) -> None:
    """What the public library signs is accepted, and its event can be looked at."""
    before = datetime.now(UTC)
    answer = client.request("POST", receiver.url, body=BODY, headers=signed(receiver.secret_file))

    (message,) = receiver.accepted
    assert answer.status == 204
    assert (message.id, message.type, message.refused) == ("m1", "dev.nodemend.remediation.open", "")
    assert before <= message.received_at <= datetime.now(UTC)
    assert receiver.wait_for(lambda m: m.id == "m1", timeout_s=0) is message


@pytest.mark.parametrize(
    ("change", "why"),
    [
        pytest.param(
            {"webhook-signature": "v1,AAAA"}, "no signature is right", id="another signature is refused"
        ),
        pytest.param({"webhook-id": "other"}, "no signature is right", id="the id is part of what is signed"),
        pytest.param(
            {"webhook-id": ""}, "header webhook-id is missing", id="a message without an id is refused"
        ),
        pytest.param(
            {"webhook-timestamp": "1000"},
            "webhook-timestamp 1000 is not within 300 s of now",
            id="an old message is refused, since it may be a replay",
        ),
    ],
)
def test_what_is_not_genuine_is_refused_and_kept(
    receiver: Receiver, client: urllib3.PoolManager, change: dict[str, str], why: str
) -> None:
    """It answers 400 and says why, so that a test sees a broken sender."""
    headers = signed(receiver.secret_file) | change
    answer = client.request("POST", receiver.url, body=BODY, headers=headers)

    assert (answer.status, receiver.messages[0].refused) == (400, why)
    assert receiver.accepted == ()


def test_a_second_signature_of_an_old_secret_does_no_harm() -> None:
    """A sender that changes its secret sends several signatures; one that is right is enough."""
    key = b"k" * 32
    secret = "whsec_" + "a2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2s="
    now = datetime.now(UTC)
    right = Webhook(secret).sign("m1", now, BODY.decode())
    headers = {
        "webhook-id": "m1",
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": f"v1,AAAA {right}",
    }

    assert why_not_genuine(key, headers, BODY, now.timestamp()) is None


def test_it_answers_as_it_is_told(receiver: Receiver, client: urllib3.PoolManager) -> None:
    """Scripted answers come one each, then the usual one; all messages are kept."""
    receiver.answer(Answer(status=500), Answer(status=429, retry_after_s=7), then=Answer(status=410))
    answers = [
        client.request("POST", receiver.url, body=BODY, headers=signed(receiver.secret_file))
        for _ in range(4)
    ]

    assert [answer.status for answer in answers] == [500, 429, 410, 410]
    assert answers[1].headers["Retry-After"] == "7"
    assert [message.answered for message in receiver.messages] == [500, 429, 410, 410]


def test_a_receiver_that_hangs_lets_the_sender_time_out(
    receiver: Receiver, client: urllib3.PoolManager
) -> None:
    """The message has arrived, no answer comes, and closing does not wait for it."""
    receiver.answer(HANGS)
    with pytest.raises(urllib3.exceptions.ReadTimeoutError):
        client.request(
            "POST",
            receiver.url,
            body=BODY,
            headers=signed(receiver.secret_file),
            timeout=urllib3.Timeout(connect=1, read=0.2),
        )
    began = time.monotonic()
    receiver.close()

    assert receiver.messages[0].answered == 0
    assert time.monotonic() - began < 5


def test_waiting_for_what_does_not_come_names_what_came(
    receiver: Receiver, client: urllib3.PoolManager
) -> None:
    """A failing test shows at once which messages there were."""
    client.request("POST", receiver.url, body=BODY, headers=signed(receiver.secret_file))

    with pytest.raises(
        TimeoutError,
        match=r"there came: dev\.nodemend\.remediation\.open \(204\)",
    ):
        receiver.wait_for(lambda m: m.type == "dev.nodemend.remediation.resolve", timeout_s=0.05)


def test_a_body_that_is_no_event_is_refused(receiver: Receiver, client: urllib3.PoolManager) -> None:
    """The envelope must be a JSON object."""
    answer = client.request(
        "POST", receiver.url, body=b"hello", headers=signed(receiver.secret_file, b"hello")
    )

    assert answer.status == 400
    assert receiver.messages[0].refused.startswith("the body is no JSON object")
