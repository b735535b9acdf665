from collections.abc import Callable, Iterator

import pytest

from devstack.harness.stack import Stack
from tests.support.fault_matrix.calls import CALLS
from tests.support.fault_matrix.faults import FAULTS
from tests.support.fault_matrix.report import Report
from tests.support.fault_matrix.rig import LEAVING_SUBSCRIBERS, Rig, open_rig
from tests.support.fault_matrix.run import QUIET_SECONDS, Observed, Samples, observe, sample
from tests.support.sizes import FULL


@pytest.fixture(scope="session")
def matrix_stack(make_lasting_stack: Callable[[str], Stack]) -> Iterator[Rig]:
    with open_rig(make_lasting_stack("matrix")) as opened:
        yield opened


@pytest.fixture(scope="session")
def undisturbed_calls(matrix_stack: Rig) -> Samples:
    """Measurements of API calls without any fault, for comparison with calls during a fault.

    Only test runs with SIZE=full measure calls without a fault.
    """
    if not FULL:
        return {}
    matrix_stack.refill(LEAVING_SUBSCRIBERS)
    sample(matrix_stack, CALLS, QUIET_SECONDS)
    matrix_stack.refill(LEAVING_SUBSCRIBERS)
    return sample(matrix_stack, CALLS, QUIET_SECONDS)


@pytest.fixture(scope="session")
def report(undisturbed_calls: Samples) -> Iterator[Report]:
    opened = Report(undisturbed_calls)
    yield opened
    if FULL:
        opened.write()


@pytest.fixture(scope="session")
def observe_fault(matrix_stack: Rig, report: Report) -> Callable[[str, list[str]], Observed]:
    """A function that makes calls during a fault and returns their results.

    Each fault is caused only once per test run, and the results of the calls are cached.
    """

    def observe_once(fault: str, calls: list[str]) -> Observed:
        if fault not in report.observed:
            report.observed[fault] = observe(matrix_stack, FAULTS[fault], calls)
        return report.observed[fault]

    return observe_once
