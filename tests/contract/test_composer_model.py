"""Tests of the composer with a language model that is correct, slow, failing or wrong."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import psutil
import pytest

from devstack.harness.polling import eventually
from devstack.harness.stack import Stack, plain_client
from services.composer.text.post import Post
from tests.support.composer.composer_stack import MODEL_SOURCE, ComposerStack, build_unique_post
from tests.support.composer.composing import (
    METADATA,
    TWEETS,
    find_metadata_faults,
    find_tweets_faults,
)
from tests.support.http.replies import data, problem

FALLBACK_SOURCE = "offline; fallback"


@pytest.fixture(scope="module")
def composer_with_model(make_stack: Callable[[str], Stack]) -> ComposerStack:
    """A test stack for this module, on which the composer asks a language model."""
    return ComposerStack(make_stack, "modelled")


@pytest.fixture
def author_client(composer_with_model: ComposerStack) -> Iterator[httpx2.Client]:
    """An API client of a new owner who uses the composer."""
    with composer_with_model.stack.client(composer_with_model.stack.create_owner().key) as client:
        yield client


@pytest.fixture
def composer_with_fallback(
    composer_with_model: ComposerStack, author_client: httpx2.Client
) -> ComposerStack:
    """A test stack whose composer uses the offline writer if the language model fails."""
    return _restore_model(composer_with_model, author_client, "offline")


def _restore_model(composer: ComposerStack, author: httpx2.Client, fallback: str) -> ComposerStack:
    """Make one successful call to the language model, so that earlier failures don't count."""
    composer.work(fallback)
    composer.steer(None)
    assert (
        author.post(METADATA, json=build_unique_post()).headers["pressroom-source"] == MODEL_SOURCE
    )
    return composer


def _ask(author: httpx2.Client, path: str, body: dict[str, str], wait: int = 20) -> httpx2.Response:
    """Call the composer, and wait for the response for at most ``wait`` seconds."""
    return author.post(path, json=body, headers={"Prefer": f"wait={wait}"})


@pytest.mark.parametrize(
    ("path", "model_behaviour", "source"),
    [
        (METADATA, None, MODEL_SOURCE),
        (TWEETS, "prose", MODEL_SOURCE),
        (METADATA, "no-json-mode", MODEL_SOURCE),
        (METADATA, "wrong-shape", FALLBACK_SOURCE),
        (METADATA, "thinks", MODEL_SOURCE),
        (METADATA, "only-thinks", FALLBACK_SOURCE),
        (TWEETS, "empty", FALLBACK_SOURCE),
        (METADATA, "500", FALLBACK_SOURCE),
        (METADATA, "trickle", FALLBACK_SOURCE),
    ],
)
def test_composer_falls_back_to_the_offline_writer_when_the_model_fails(
    composer_with_fallback: ComposerStack,
    author_client: httpx2.Client,
    path: str,
    model_behaviour: str | None,
    source: str,
) -> None:
    composer_with_fallback.steer(model_behaviour)
    body = build_unique_post()
    reply = _ask(author_client, path, body, wait=4 if model_behaviour == "trickle" else 20)
    assert reply.headers["pressroom-source"] == source
    find_faults = find_metadata_faults if path == METADATA else find_tweets_faults
    assert find_faults(Post(**body), data(reply)) == []


@pytest.mark.tier("processes")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can read the memory map of a worker")
def test_composer_worker_preloads_the_offline_writer_when_configured_as_fallback(
    composer_with_model: ComposerStack,
) -> None:
    """A worker loads the offline writer at its start, because some callers wait only briefly."""
    composer_with_model.stop_workers()
    assert not _has_loaded_models(composer_with_model.work("error").pid)
    worker_pid = composer_with_model.work("offline").pid
    eventually(lambda: _has_loaded_models(worker_pid), what="loading of the models")


def _has_loaded_models(worker_pid: int) -> bool:
    """Return whether a child process of the worker has loaded the offline writer's models.

    Among these models, only language detection uses numpy.
    """
    children = psutil.Process(worker_pid).children(recursive=True)
    return any("/numpy/" in Path(f"/proc/{child.pid}/maps").read_text() for child in children)


def test_composer_caches_model_texts_but_no_fallback_texts(
    composer_with_fallback: ComposerStack, author_client: httpx2.Client
) -> None:
    body = build_unique_post()
    composer_with_fallback.steer("500")
    assert _ask(author_client, METADATA, body).headers["pressroom-source"] == FALLBACK_SOURCE
    composer_with_fallback.steer(None)
    first_reply = _ask(author_client, METADATA, body)
    assert first_reply.headers["pressroom-source"] == MODEL_SOURCE
    calls_before = composer_with_fallback.calls()
    repeated_reply = _ask(author_client, METADATA, body)
    assert repeated_reply.headers["pressroom-source"] == f"{MODEL_SOURCE}; cached"
    assert data(repeated_reply) == data(first_reply)
    assert composer_with_fallback.calls() == calls_before


def test_concurrent_composer_calls_for_equal_posts_cause_only_one_model_call(
    composer_with_fallback: ComposerStack, author_client: httpx2.Client
) -> None:
    stack = composer_with_fallback.stack
    composer_with_fallback.steer("moment")
    body = build_unique_post()
    calls_before = composer_with_fallback.calls()

    def ask(base_url: str) -> httpx2.Response:
        headers = dict(author_client.headers)
        with plain_client(headers=headers) as client:
            return client.post(base_url + METADATA, json=body)

    with stack.run_second_api() as second_api, ThreadPoolExecutor(12) as pool:
        replies = list(pool.map(ask, [stack.api_url, second_api.api_url] * 6))
    assert len({str(data(reply)) for reply in replies}) == 1
    assert composer_with_fallback.calls() == calls_before + 1


@pytest.mark.parametrize(
    ("model_behaviour", "error"),
    [
        ("500", (502, "llm.failed")),
        ("429", (503, "llm.unavailable")),
        ("no-json", (502, "composer.answer_unusable")),
        ("slow", (504, "llm.too_slow")),
    ],
)
def test_composer_returns_the_model_error_when_no_fallback_is_configured(
    composer_with_model: ComposerStack,
    author_client: httpx2.Client,
    model_behaviour: str,
    error: tuple[int, str],
) -> None:
    _restore_model(composer_with_model, author_client, "error").steer(model_behaviour)
    reply = _ask(
        author_client, METADATA, build_unique_post(), wait=4 if model_behaviour == "slow" else 20
    )
    problem(reply, *error)
    assert ("retry-after" in reply.headers) == (error[0] == 503)
    assert "pressroom-source" not in reply.headers
