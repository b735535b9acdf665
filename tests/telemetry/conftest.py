from collections.abc import Callable, Iterator

import httpx2
import pytest

from devstack.harness.stack import Stack
from tests.support.composer.language_model import Run
from tests.support.composer.modelling import steered_settings
from tests.support.observability.otlp_collector import Collector, collecting

RUN = "traces"


@pytest.fixture(scope="package")
def collector() -> Iterator[Collector]:
    with collecting() as opened:
        yield opened


@pytest.fixture(scope="package")
def traced(make_lasting_stack: Callable[[str], Stack], collector: Collector) -> Stack:
    """A stack whose API and workers tell the collector of what they do."""
    traced = make_lasting_stack("traced")
    traced.start_sandbox()
    traced.environment |= collector.environment | steered_settings(Run(traced.sandbox_url, RUN))
    with traced.starting_together():
        traced.start_api()
        traced.start_worker("media", "bulk", concurrency=1)
        traced.start_worker("request", "mail")
    return traced


@pytest.fixture
def caller(traced: Stack) -> Iterator[httpx2.Client]:
    with traced.client(traced.new_owner().key) as client:
        yield client
