import ipaddress
from collections.abc import Iterator, Sequence

import pytest

from integrations.receivers.client import Outcome, ReceiverClient, SignedPost
from tests.support.http.webhook_receiver import OK, HookReceiver, running_receiver

LOCAL_NETWORK = ipaddress.ip_network("127.0.0.0/8")
EVENT_IDS = ["evt_1", "evt_2", "evt_3", "evt_4"]


@pytest.fixture
def receiver() -> Iterator[HookReceiver]:
    with running_receiver() as hook_receiver:
        yield hook_receiver


def post_all(receiver: HookReceiver, *, addresses: Sequence[str] = ("127.0.0.1",)) -> list[Outcome]:
    """Post one webhook per id in ``EVENT_IDS``. The receiver's host resolves to ``addresses``."""
    client = ReceiverClient([LOCAL_NETWORK], lambda host, port: addresses)
    url = receiver.url.replace("127.0.0.1", "receiver.example")
    return client.post_each(url, (SignedPost(b"{}", {"webhook-id": each}) for each in EVENT_IDS))


def list_statuses(outcomes: Sequence[Outcome]) -> list[int | None]:
    return [each.status for each in outcomes]


def test_consecutive_webhook_posts_of_one_batch_share_a_connection(receiver: HookReceiver) -> None:
    for number in (1, 2):
        assert list_statuses(post_all(receiver)) == [200] * 4
        assert receiver.connections == number
    assert receiver.ids == EVENT_IDS * 2


def test_webhook_batch_stops_at_the_first_failed_post(receiver: HookReceiver) -> None:
    receiver.answer = lambda hook: (500, {"Retry-After": "7"}) if hook.id == "evt_2" else OK
    outcomes = post_all(receiver)
    assert list_statuses(outcomes) == [200, 500]
    assert (outcomes[1].retry_after, outcomes[1].body) == ("7", b"taken")
    assert receiver.ids == EVENT_IDS[:2]


def test_webhook_post_on_closed_connection_has_no_outcome(receiver: HookReceiver) -> None:
    receiver.closes_silently = True
    outcomes = post_all(receiver)
    # If the client notices in time that the receiver closed the connection, the client opens a new
    # connection for the next post. If the client posts on the closed connection, the client gets no
    # response, and posts no further webhooks.
    assert len(outcomes) >= 1
    assert all(each.is_success for each in outcomes)
    assert receiver.ids == EVENT_IDS[: len(outcomes)]


def test_webhook_batch_continues_with_the_first_address_that_answers(
    receiver: HookReceiver,
) -> None:
    # No server listens at the first two IP addresses of the receiver.
    assert (
        list_statuses(post_all(receiver, addresses=["127.0.0.3", "127.0.0.2", "127.0.0.1"]))
        == [200] * 4
    )
    assert receiver.connections == 1
    [outcome] = post_all(receiver, addresses=["127.0.0.3", "127.0.0.2"])
    assert outcome.error == "The connection failed: the server refused the connection."
