from collections.abc import Callable, Iterator

import pytest

from devstack.harness.stack import Stack
from tests.support.fault_matrix.calls import CALLS
from tests.support.fault_matrix.faults import FAULTS
from tests.support.fault_matrix.report import Report
from tests.support.fault_matrix.rig import LEAVING, Rig, open_rig
from tests.support.fault_matrix.run import QUIET_SECONDS, Observed, Samples, observe, sample
from tests.support.sizes import FULL


@pytest.fixture(autouse=True)
def _left_as_found() -> None:
    """The matrix has a stack of its own, which each fault leaves as it found it."""


@pytest.fixture(scope="session")
def rig(make_lasting_stack: Callable[[str], Stack]) -> Iterator[Rig]:
    with open_rig(make_lasting_stack("matrix")) as opened:
        yield opened


@pytest.fixture(scope="session")
def quiet(rig: Rig) -> Samples:
    """The calls while nothing is wrong: the full form compares with them."""
    if not FULL:
        return {}
    rig.refill(LEAVING)
    sample(rig, CALLS, QUIET_SECONDS)
    rig.refill(LEAVING)
    return sample(rig, CALLS, QUIET_SECONDS)


@pytest.fixture(scope="session")
def report(quiet: Samples) -> Iterator[Report]:
    opened = Report(quiet)
    yield opened
    if FULL:
        opened.write()


@pytest.fixture(scope="session")
def observed(rig: Rig, report: Report) -> Callable[[str, list[str]], Observed]:
    """What these calls met during the fault, which happens once for all of its cells."""

    def of(fault: str, calls: list[str]) -> Observed:
        if fault not in report.observed:
            report.observed[fault] = observe(rig, FAULTS[fault], calls)
        return report.observed[fault]

    return of
