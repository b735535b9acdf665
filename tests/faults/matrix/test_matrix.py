"""The fault matrix: the outcome of each API call while one dependency is slow, hangs or is down.

By default, the test makes only one kind of API call during each fault, and ignores its duration.
With `PRESSROOM_SIZE=full`, the test makes all API calls during each fault. The full test also
checks that no call takes longer than promised, and compares the durations of calls with and without
the fault. The full test writes its results into build/fault-matrix.md.
"""

from collections.abc import Callable

import pytest

from tests.support.fault_matrix.calls import CALLS
from tests.support.fault_matrix.faults import FAULTS
from tests.support.fault_matrix.promises import ALLOWED, PROMISES, SHORT_FORM_CALLS, WorstOutcome
from tests.support.fault_matrix.run import Observed, Samples, p50, slowdown
from tests.support.sizes import FULL

MAX_RATIO = 3.0
CELLS = [
    (fault, call) for fault in FAULTS for call in CALLS if FULL or SHORT_FORM_CALLS[fault] == call
]


@pytest.mark.parametrize(("fault", "call"), CELLS, ids=[" x ".join(each) for each in CELLS])
def test_fault_of_one_dependency_harms_each_call_no_more_than_promised(
    fault: str,
    call: str,
    observe_fault: Callable[[str, list[str]], Observed],
    undisturbed_calls: Samples,
) -> None:
    calls = [cell_call for cell_fault, cell_call in CELLS if cell_fault == fault]
    observed = observe_fault(fault, calls)
    promise = PROMISES[fault, call]
    during = observed.during[call]
    broken = [each for each in during if each.outcome not in ALLOWED[promise.worst]]
    assert not broken, broken[0]
    assert call not in observed.stuck
    assert not observed.lost
    if FULL and promise.worst is WorstOutcome.UNTOUCHED:
        assert slowdown(call, undisturbed_calls, observed) <= MAX_RATIO
    if FULL:
        slowest = max(during, key=lambda each: each.seconds)
        assert slowest.seconds <= promise.within_seconds, slowest
        assert p50(observed.after[call]) <= MAX_RATIO * p50(undisturbed_calls[call])
