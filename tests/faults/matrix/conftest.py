from collections.abc import Callable, Iterator

import pytest

from devstack.harness.stack import Stack
from tests.support.fault_matrix.calls import CALLS
from tests.support.fault_matrix.faults import FAULTS
from tests.support.fault_matrix.report import Report
from tests.support.fault_matrix.rig import LEAVING, Rig, open_rig
from tests.support.fault_matrix.run import QUIET_SECONDS, Observed, Samples, observe, sample
from tests.support.sizes import FULL


@pytest.fixture(scope="session")
def matrix_stack(make_lasting_stack: Callable[[str], Stack]) -> Iterator[Rig]:
    with open_rig(make_lasting_stack("matrix")) as opened:
        yield opened


@pytest.fixture(scope="session")
def undisturbed_calls(matrix_stack: Rig) -> Samples:
    """The measured calls without a fault. With SIZE=full, each fault is compared to these calls."""
    if not FULL:
        return {}
    matrix_stack.refill(LEAVING)
    sample(matrix_stack, CALLS, QUIET_SECONDS)
    matrix_stack.refill(LEAVING)
    return sample(matrix_stack, CALLS, QUIET_SECONDS)


@pytest.fixture(scope="session")
def report(undisturbed_calls: Samples) -> Iterator[Report]:
    opened = Report(undisturbed_calls)
    yield opened
    if FULL:
        opened.write()


@pytest.fixture(scope="session")
def observe_fault(matrix_stack: Rig, report: Report) -> Callable[[str, list[str]], Observed]:
    """A function that returns the results of calls during a fault. Each fault happens once."""

    def observe_once(fault: str, calls: list[str]) -> Observed:
        if fault not in report.observed:
            report.observed[fault] = observe(matrix_stack, FAULTS[fault], calls)
        return report.observed[fault]

    return observe_once
