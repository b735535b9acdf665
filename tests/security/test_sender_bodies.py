"""Bodies that are posted to the URL of a sender without a valid signature, to make the API work."""

import gzip
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest

from api.response_timing import STEP_SECONDS
from devstack.harness.stack import Stack
from devstack.sandbox.senders.mail_events import ProviderName
from tests.support.http.replies import problem
from tests.support.security.json_places import ApiUse
from tests.support.senders.posting import post_body, signed
from tests.support.senders.provider_posts import new_provider_sender
from tests.support.sizes import sized

UNKNOWN_ID = 2**53 - 2
WRONG_SECRET = "whsec_" + "A" * 40
MAILGUN_HEAD = b'{"signature":{"timestamp":"1","token":"x","signature":"y"},"event-data":['
MAX_PROVIDER_BODY_BYTES = 300 * 1024
LARGEST_BODY_BYTES = 2 * 1024 * 1024


def nested_lists(max_bytes: int) -> bytes:
    """Return a body of ``max_bytes`` that is full of lists, and looks like a body of Mailgun."""
    count = (max_bytes - len(MAILGUN_HEAD) - 8) // 5
    body = MAILGUN_HEAD + b"[[]]," * count + b"[[]]]}"
    return body + b" " * (max_bytes - len(body))


@pytest.fixture(params=["unknown", *ProviderName])
def sender_id(request: pytest.FixtureRequest, stack: Stack, client: httpx2.Client) -> int:
    if request.param == "unknown":
        return UNKNOWN_ID
    return int(new_provider_sender(stack, client, request.param)["id"])


GZIP_BODIES = (
    gzip.compress(nested_lists(MAX_PROVIDER_BODY_BYTES)),
    gzip.compress(b" " * 64 * 1024 * 1024),
    gzip.compress(b"") * (MAX_PROVIDER_BODY_BYTES // len(gzip.compress(b""))),
)


@pytest.mark.tier("fast", "properties")
@pytest.mark.parametrize(
    "body",
    [nested_lists(MAX_PROVIDER_BODY_BYTES), nested_lists(LARGEST_BODY_BYTES), *GZIP_BODIES],
    ids=["allowed", "too large", "nested lists", "spaces", "empty parts"],
)
def test_unsigned_bodies_of_all_senders_get_the_same_answer_with_little_work(
    stack: Stack, client: httpx2.Client, sender_id: int, body: bytes
) -> None:
    headers = signed(WRONG_SECRET, body)
    if body in GZIP_BODIES:
        headers["Content-Encoding"] = "gzip"
    count = sized(12, 60, few=6)
    use = ApiUse(stack)
    with ThreadPoolExecutor(3) as pool:
        replies = [*pool.map(lambda _: post_body(client, sender_id, body, headers), range(count))]
    for reply in replies:
        problem(reply, 401, "sender.signature_invalid")
        assert reply.headers["www-authenticate"] == 'Basic realm="pressroom"'
        assert reply.elapsed.total_seconds() >= STEP_SECONDS * 0.95
    # The target is 20 ms per post of 2 MB. Parsing such a post takes 150 ms.
    assert use.cpu_seconds / count < 0.1
    assert use.added_bytes < 50 * 1024 * 1024
