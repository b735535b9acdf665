"""The fault matrix: what becomes of each call while one dependency is slow, hung, or gone.

The short form looks at what becomes of one call of each fault, however long it takes. The full form
looks at all, holds them against the times that are promised and against quiet ones in the same run,
and writes build/fault-matrix.md.
"""

from collections.abc import Callable

import pytest

from tests.support.fault_matrix.calls import CALLS
from tests.support.fault_matrix.faults import FAULTS
from tests.support.fault_matrix.promises import ALLOWED, PROMISES, TELLING, Worst
from tests.support.fault_matrix.run import Observed, Samples, p50, slowdown
from tests.support.sizes import FULL

MAX_RATIO = 3.0
CELLS = [(fault, call) for fault in FAULTS for call in CALLS if FULL or TELLING[fault] == call]


@pytest.mark.parametrize(("fault", "call"), CELLS, ids=[" x ".join(each) for each in CELLS])
def test_fault_of_one_dependency_harms_each_call_no_more_than_promised(
    fault: str,
    call: str,
    observe_fault: Callable[[str, list[str]], Observed],
    undisturbed_calls: Samples,
) -> None:
    found = observe_fault(fault, [each for of, each in CELLS if of == fault])
    promise = PROMISES[fault, call]
    during = found.during[call]
    broken = [each for each in during if each.outcome not in ALLOWED[promise.worst]]
    assert not broken, broken[0]
    assert call not in found.stuck
    assert not found.lost
    if FULL and promise.worst is Worst.UNTOUCHED:
        assert slowdown(call, undisturbed_calls, found) <= MAX_RATIO
    if FULL:
        slowest = max(during, key=lambda each: each.seconds)
        assert slowest.seconds <= promise.within_seconds, slowest
        assert p50(found.after[call]) <= MAX_RATIO * p50(undisturbed_calls[call])
