"""Tests that disconnected callers of the composer cause few LLM calls and leave nothing behind."""

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
from tests.support.composer.composer_stack import MODEL_SOURCE, ComposerStack, build_unique_post
from tests.support.composer.composing import METADATA
from tests.support.observability.scraping import scrape_api
from tests.support.sizes import sized
from tests.support.stack.signals import count_descriptors

THREADS = 2
CALLERS_OF_SLOW_LLM = sized(100, 500)
CALLERS_WITH_LONG_POSTS = sized(80, 10_000)
CONCURRENT_CALLERS = 40
MEGABYTE = 1024 * 1024
POST_CHARACTERS = 100_000
# The process's connection pools and memory arenas may grow a little. If the process kept all posts
# in memory, its growth would far exceed this maximum.
MAX_MEMORY_GROWTH_BYTES = 64 * MEGABYTE


@pytest.fixture(scope="module")
def stack_with_model(make_stack: Callable[[str], Stack]) -> ComposerStack:
    return ComposerStack(make_stack, "composer-faults")


@pytest.fixture
def api_key(stack_with_model: ComposerStack) -> Iterator[str]:
    yield stack_with_model.stack.create_owner().key
    stack_with_model.stop_workers()
    stack_with_model.stack.resources.redis.flushdb()


def call_and_disconnect(
    stack_with_model: ComposerStack, api_key: str, callers: int, words: str = ""
) -> None:
    """Let several callers call the composer with different posts, and disconnect after 0.3 s."""
    timeout = httpx2.Timeout(20, read=0.3)

    def call(_: int) -> None:
        with contextlib.suppress(httpx2.ReadTimeout):
            client.post(METADATA, json=build_unique_post(words), timeout=timeout)

    with (
        stack_with_model.stack.client(api_key) as client,
        ThreadPoolExecutor(CONCURRENT_CALLERS) as pool,
    ):
        list(pool.map(call, range(callers)))


def has_no_calls(stack_with_model: ComposerStack) -> bool:
    """Return whether no caller waits, and Redis holds no call's input or result."""
    redis = stack_with_model.stack.resources.redis
    kinds = ("waiting", "input", "result", "running")
    return not any(list(redis.scan_iter(f"pressroom:{kind}:*", count=1000)) for kind in kinds)


def is_queue_empty(stack_with_model: ComposerStack) -> bool:
    return not stack_with_model.stack.resources.redis.llen("pressroom.request")


def call_composer(stack_with_model: ComposerStack, api_key: str) -> httpx2.Response:
    with stack_with_model.stack.client(api_key) as client:
        return client.post(METADATA, json=build_unique_post(), headers={"Prefer": "wait=45"})


def test_queued_llm_calls_are_dropped_when_their_callers_disconnect(
    stack_with_model: ComposerStack, api_key: str
) -> None:
    stack_with_model.work(concurrency=THREADS)
    stack_with_model.steer("moment")
    call_and_disconnect(stack_with_model, api_key, CALLERS_OF_SLOW_LLM)
    eventually(lambda: has_no_calls(stack_with_model), what="the end of all calls")
    calls_before = stack_with_model.calls()
    # The worker's two threads call the LLM only for callers that are still connected.
    assert calls_before < CALLERS_OF_SLOW_LLM / 2
    eventually(lambda: is_queue_empty(stack_with_model), what="the end of the queue")
    stack_with_model.steer(None)
    assert call_composer(stack_with_model, api_key).headers["pressroom-source"] == MODEL_SOURCE
    # ``call_composer`` causes one LLM call. Each of the worker's threads may also have started an
    # LLM call just before the last caller disconnected.
    assert 1 <= stack_with_model.calls() - calls_before <= 1 + THREADS


def test_llm_is_not_called_if_all_callers_disconnect_before_a_worker_starts(
    stack_with_model: ComposerStack, api_key: str
) -> None:
    stack_with_model.steer(None)
    before = stack_with_model.calls()
    call_and_disconnect(stack_with_model, api_key, CONCURRENT_CALLERS)
    eventually(lambda: has_no_calls(stack_with_model), what="the end of all calls")
    stack_with_model.work(concurrency=2)
    assert call_composer(stack_with_model, api_key).status_code == 200
    assert stack_with_model.calls() == before + 1


def test_llm_call_is_not_retried_for_disconnected_caller(
    stack_with_model: ComposerStack, api_key: str
) -> None:
    stack_with_model.work(concurrency=2)
    stack_with_model.steer("429")
    before = stack_with_model.calls()
    connection = http.client.HTTPConnection(LOOPBACK, stack_with_model.stack.api_port)
    headers = {"Authorization": f"Bearer {api_key}", "Content-Type": "application/json"}
    connection.request("POST", METADATA, json.dumps(build_unique_post()), headers)
    # Stay connected until a worker calls the LLM.
    eventually(lambda: stack_with_model.calls() > before, what="the first try")
    connection.close()
    eventually(lambda: has_no_calls(stack_with_model), what="the end of the call")
    assert stack_with_model.calls() == before + 1


def test_disconnected_composer_callers_leave_no_resources_behind(
    stack_with_model: ComposerStack, api_key: str
) -> None:
    stack_with_model.work(concurrency=4)
    stack_with_model.steer("moment")
    words = "word " * (POST_CHARACTERS // 5)
    [api] = [each for each in stack_with_model.stack.processes if each.name == "api"]
    # Fill the connection pools before the measurement, because the test must not mistake the growth
    # of the connection pools for a leak.
    call_and_disconnect(stack_with_model, api_key, 2 * CONCURRENT_CALLERS, words)
    eventually(
        lambda: has_no_calls(stack_with_model) and is_queue_empty(stack_with_model),
        what="the end of the first calls",
    )
    keys_before = find_temporary_keys(stack_with_model)
    memory_before = measure_memory(api.pid)
    descriptors_before = count_descriptors(api)
    redis_memory_before = redis_memory(stack_with_model)
    call_and_disconnect(stack_with_model, api_key, CALLERS_WITH_LONG_POSTS, words)
    eventually(
        lambda: has_no_calls(stack_with_model) and is_queue_empty(stack_with_model),
        what="the end of the last calls",
    )
    scrape = partial(scrape_api, stack_with_model.stack)
    eventually(lambda: scrape().value("pressroom_waiting_requests") == 0, what="no waiting request")
    assert find_temporary_keys(stack_with_model) == keys_before
    assert count_descriptors(api) <= descriptors_before + CONCURRENT_CALLERS
    assert measure_memory(api.pid) <= memory_before + MAX_MEMORY_GROWTH_BYTES
    assert redis_memory(stack_with_model) <= redis_memory_before + 8 * MEGABYTE
    assert call_composer(stack_with_model, api_key).status_code == 200


def find_temporary_keys(stack_with_model: ComposerStack) -> set[bytes]:
    """Return the keys in Redis, except cached results and the workers' own keys."""
    keys: set[bytes] = set(
        stack_with_model.stack.resources.redis.scan_iter("pressroom:*", count=1000)
    )
    lasting = (b"pressroom:cache:", b"pressroom:llm-usage", b"pressroom:canaries")
    return {key for key in keys if not key.startswith(lasting)}


def redis_memory(stack_with_model: ComposerStack) -> int:
    return int(stack_with_model.stack.resources.redis.info("memory")["used_memory"])
