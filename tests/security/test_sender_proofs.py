"""Tests that the duration of rejected calls doesn't reveal whether a sender exists."""

import time
from collections.abc import Mapping

import httpx2
import pytest

from api.response_timing import STEP_SECONDS
from devstack.harness.stack import Stack
from devstack.sandbox.senders.mail_events import ProviderName
from tests.support.senders.posting import body_of, post_body, signed
from tests.support.senders.provider_posts import new_provider_sender

BODY = body_of()
WRONG_PROOFS: Mapping[str, dict[str, str]] = {
    "missing": {},
    "signed": signed("whsec_" + "A" * 40, BODY),
    "basic": {"Authorization": "Basic bm86bm8="},
    "bearer": {"Authorization": "Bearer nonsense"},
}


@pytest.mark.parametrize("proof", WRONG_PROOFS)
@pytest.mark.parametrize("provider", ["unknown", *ProviderName])
def test_rejected_calls_of_known_and_unknown_senders_are_padded_to_the_same_time(
    stack: Stack, client: httpx2.Client, provider: str, proof: str
) -> None:
    sender_id = 2**53 - 2
    if provider != "unknown":
        sender_id = new_provider_sender(stack, client, provider)["id"]
    began_at = time.perf_counter()
    reply = post_body(client, sender_id, BODY, WRONG_PROOFS[proof])
    assert time.perf_counter() - began_at >= STEP_SECONDS * 0.95
    assert reply.status_code == 401
