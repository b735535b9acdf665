"""Tests that each composer call is charged exactly once if the API or a worker is killed."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest

from devstack.harness.polling import eventually
from devstack.harness.stack import Owner, Stack
from services.credits import own_charges, verify
from tests.support.composer.composer_stack import MODEL_SOURCE, ComposerStack, build_unique_post
from tests.support.composer.composing import METADATA
from tests.support.credits import credits
from tests.support.http.replies import data


@pytest.fixture(scope="module")
def priced_composer(make_stack: Callable[[str], Stack]) -> ComposerStack:
    return ComposerStack(make_stack, "priced-faults", PRESSROOM_COMPOSER_PRICE="2")


@pytest.fixture
def funded_owner(priced_composer: ComposerStack) -> Owner:
    created_owner = priced_composer.stack.create_owner()
    credits.grant(priced_composer.stack, created_owner.user_id, "2")
    return created_owner


def open_charges(model: ComposerStack, *, taken: bool) -> list[tuple[object, ...]]:
    query = "SELECT entry_id FROM open_charges WHERE (taken_by IS NOT NULL) = %s"
    return model.stack.query(query, taken)


def test_composer_charge_is_refunded_after_killed_api_and_next_call_is_charged_once(
    priced_composer: ComposerStack, funded_owner: Owner
) -> None:
    stack = priced_composer.stack
    body = build_unique_post()
    [api] = [each for each in stack.processes if each.name == "api"]
    with stack.client(funded_owner.key) as client, ThreadPoolExecutor() as pool:
        composer_call = pool.submit(client.post, METADATA, json=body)
        eventually(lambda: open_charges(priced_composer, taken=False), what="the charge")
        api.kill()
        with pytest.raises(httpx2.TransportError):
            composer_call.result()
    stack.start_api()
    with stack.client(funded_owner.key) as client:
        assert credits.balance(client) == 0
        stack.query("UPDATE open_charges SET deadline = now()")
        own_charges.reverse_overdue_charges(stack.resources)
        assert credits.balance(client) == 2
        priced_composer.work()
        priced_composer.steer(None)
        reply = client.post(METADATA, json=body)
        data(reply)
        assert reply.headers["pressroom-source"] == MODEL_SOURCE
        assert credits.balance(client) == 0


def test_worker_reuses_the_composer_charge_of_a_killed_worker(
    priced_composer: ComposerStack, funded_owner: Owner
) -> None:
    stack = priced_composer.stack
    killed_worker = priced_composer.work()
    priced_composer.steer("moment")
    with stack.client(funded_owner.key) as client, ThreadPoolExecutor() as pool:
        composer_call = pool.submit(client.post, METADATA, json=build_unique_post())
        eventually(lambda: open_charges(priced_composer, taken=True), what="the call of the LLM")
        killed_worker.kill()
        stack.start_worker("request", concurrency=4)
        reply = composer_call.result()
        data(reply)
        assert reply.headers["pressroom-source"] == MODEL_SOURCE
        assert [each["action"] for each in credits.entries(client)] == ["consume", "grant"]
    assert open_charges(priced_composer, taken=True) == []
    assert verify.verify_ledger(stack.resources, full=True).faults == []
