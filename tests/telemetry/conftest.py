from collections.abc import Iterator

import httpx2
import pytest

from devstack.harness.stack import Stack
from tests.support.composer.composer_stack import steered_settings
from tests.support.composer.language_model import LanguageModelRun
from tests.support.observability.otlp_collector import Collector, running_collector
from tests.support.observability.traced_calls import MODEL_RUN


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with running_collector() as opened:
        yield opened


@pytest.fixture(scope="module")
def traced_stack(empty_stack: Stack, collector: Collector) -> Stack:
    """A test stack whose API and workers send traces to an OpenTelemetry collector."""
    stack = empty_stack
    stack.start_sandbox()
    run = LanguageModelRun(stack.sandbox_url, MODEL_RUN)
    stack.environment |= collector.environment | steered_settings(run)
    with stack.starting_together():
        stack.start_api()
        stack.start_worker("media", "bulk", concurrency=1)
        stack.start_worker("request", "mail")
    return stack


@pytest.fixture
def traced_client(traced_stack: Stack) -> Iterator[httpx2.Client]:
    with traced_stack.client(traced_stack.create_owner().key) as client:
        yield client
