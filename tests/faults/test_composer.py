import contextlib
import http.client
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import httpx2
import pytest

from devstack import LOOPBACK
from devstack.harness.polling import eventually
from devstack.harness.process_memory import measure_memory
from devstack.harness.stack import Stack
from tests.support.composer.composing import METADATA
from tests.support.composer.modelling import SOURCE, Modelled, post
from tests.support.observability.scraping import scrape_api
from tests.support.sizes import sized
from tests.support.stack.signals import count_descriptors

THREADS = 2
LEAVING_THE_MODEL = sized(100, 500)
LEAVING = sized(80, 10_000)
AT_ONCE = 40
MEGABYTE = 1024 * 1024
# Pools and arenas grow a little; so many posts of this size would take far more.
POST_CHARACTERS = 100_000
MOST_GROWTH = 64 * MEGABYTE


@pytest.fixture(scope="module")
def stack_with_model(make_stack: Callable[[str], Stack]) -> Modelled:
    return Modelled(make_stack, "composer-faults")


@pytest.fixture
def api_key(stack_with_model: Modelled) -> Iterator[str]:
    yield stack_with_model.stack.create_owner().key
    stack_with_model.rest()
    stack_with_model.stack.resources.redis.flushdb()


def leave(stack_with_model: Modelled, api_key: str, callers: int, words: str = "") -> None:
    """So many callers, some at a time, each with a post of its own and gone after a moment."""

    timeout = httpx2.Timeout(20, read=0.3)

    def call(_: int) -> None:
        with contextlib.suppress(httpx2.ReadTimeout):
            client.post(METADATA, json=post(words), timeout=timeout)

    with stack_with_model.stack.client(api_key) as client, ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(call, range(callers)))


def left(stack_with_model: Modelled) -> bool:
    """Nobody waits, and nothing that was asked is there any more."""
    redis = stack_with_model.stack.resources.redis
    kinds = ("waiting", "input", "result", "running")
    return not any(list(redis.scan_iter(f"pressroom:{kind}:*", count=1000)) for kind in kinds)


def drained(stack_with_model: Modelled) -> bool:
    return not stack_with_model.stack.resources.redis.llen("pressroom.request")


def asked_after(stack_with_model: Modelled, api_key: str) -> httpx2.Response:
    with stack_with_model.stack.client(api_key) as client:
        return client.post(METADATA, json=post(), headers={"Prefer": "wait=45"})


def test_queued_llm_calls_are_dropped_when_their_callers_disconnect(
    stack_with_model: Modelled, api_key: str
) -> None:
    stack_with_model.work(concurrency=THREADS)
    stack_with_model.steer("moment")
    leave(stack_with_model, api_key, LEAVING_THE_MODEL)
    eventually(lambda: left(stack_with_model), what="the end of what was asked")
    spent = stack_with_model.calls()
    # Only what two threads took up while somebody was there.
    assert spent < LEAVING_THE_MODEL / 2
    eventually(lambda: drained(stack_with_model), what="the end of the queue")
    stack_with_model.steer(None)
    assert asked_after(stack_with_model, api_key).headers["pressroom-source"] == SOURCE
    # Each thread may have looked just before the last one left, and be sending since.
    assert 1 <= stack_with_model.calls() - spent <= 1 + THREADS


def test_llm_is_not_called_if_all_callers_disconnect_before_a_worker_starts(
    stack_with_model: Modelled, api_key: str
) -> None:
    stack_with_model.steer(None)
    before = stack_with_model.calls()
    leave(stack_with_model, api_key, AT_ONCE)
    eventually(lambda: left(stack_with_model), what="the end of what was asked")
    stack_with_model.work(concurrency=2)
    assert asked_after(stack_with_model, api_key).status_code == 200
    assert stack_with_model.calls() == before + 1


def test_llm_call_is_not_retried_for_disconnected_caller(
    stack_with_model: Modelled, api_key: str
) -> None:
    stack_with_model.work(concurrency=2)
    stack_with_model.steer("429")
    before = stack_with_model.calls()
    connection = http.client.HTTPConnection(LOOPBACK, stack_with_model.stack.api_port)
    headers = {"Authorization": f"Bearer {api_key}", "Content-Type": "application/json"}
    connection.request("POST", METADATA, json.dumps(post()), headers)
    # Who leaves sooner may find that a worker has not even begun.
    eventually(lambda: stack_with_model.calls() > before, what="the first try")
    connection.close()
    eventually(lambda: left(stack_with_model), what="the end of what was asked")
    assert stack_with_model.calls() == before + 1


def test_disconnected_composer_callers_leave_no_resources_behind(
    stack_with_model: Modelled, api_key: str
) -> None:
    stack_with_model.work(concurrency=4)
    stack_with_model.steer("moment")
    words = "word " * (POST_CHARACTERS // 5)
    [api] = [each for each in stack_with_model.stack.processes if each.name == "api"]
    # First as many as there may be connections, so that the pools are what they become.
    leave(stack_with_model, api_key, 2 * AT_ONCE, words)
    eventually(
        lambda: left(stack_with_model) and drained(stack_with_model), what="the first ones' end"
    )
    before, memory, descriptors = (
        kept(stack_with_model),
        measure_memory(api.pid),
        count_descriptors(api),
    )
    used = redis_memory(stack_with_model)
    leave(stack_with_model, api_key, LEAVING, words)
    eventually(
        lambda: left(stack_with_model) and drained(stack_with_model), what="the last ones' end"
    )
    told = partial(scrape_api, stack_with_model.stack)
    eventually(lambda: told().value("pressroom_waiting_requests") == 0, what="no waiter")
    assert kept(stack_with_model) == before
    assert count_descriptors(api) <= descriptors + AT_ONCE
    assert measure_memory(api.pid) <= memory + MOST_GROWTH
    assert redis_memory(stack_with_model) <= used + 8 * MEGABYTE
    assert asked_after(stack_with_model, api_key).status_code == 200


def kept(stack_with_model: Modelled) -> set[bytes]:
    """What is in Redis but for answers, of which some came in time, and the workers' own."""
    names: set[bytes] = set(
        stack_with_model.stack.resources.redis.scan_iter("pressroom:*", count=1000)
    )
    lasting = (b"pressroom:cache:", b"pressroom:llm-usage", b"pressroom:canaries")
    return {name for name in names if not name.startswith(lasting)}


def redis_memory(stack_with_model: Modelled) -> int:
    return int(stack_with_model.stack.resources.redis.info("memory")["used_memory"])
