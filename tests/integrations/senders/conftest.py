from collections.abc import Iterator

import pytest

from tests.support.senders.sns import FaultySns, run_sns


@pytest.fixture(scope="module")
def sns_server() -> Iterator[FaultySns]:
    with run_sns() as running_sns:
        yield running_sns


@pytest.fixture
def sns(sns_server: FaultySns) -> FaultySns:
    """A simulation of Amazon SNS whose replies a test can change."""
    sns_server.reset()
    return sns_server
