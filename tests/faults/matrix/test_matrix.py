"""The fault matrix: the outcome of each API call while one dependency is slow, hangs or is down.

By default, the test makes only one kind of API call during each fault, and ignores its duration.
With `PRESSROOM_SIZE=full`, the test makes all API calls during each fault. The full test also
checks that no call takes longer than promised, and compares the durations of calls with and without
the fault. The full test writes its results into build/fault-matrix.md.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

import pytest

from devstack.harness.stack import Stack
from tests.support.faults.calls import CALLS, WAIT_SECONDS, Outcome
from tests.support.faults.faults import FAULTS
from tests.support.faults.rig import LEAVING_SUBSCRIBERS, Rig, open_rig
from tests.support.faults.run import (
    QUIET_SECONDS,
    Observed,
    Samples,
    observe,
    p50,
    p99,
    sample,
    slowdown,
)
from tests.support.sizes import FULL

MAX_RATIO = 3.0
REPORT_FILE = Path(__file__).parents[3] / "build" / "fault-matrix.md"


class WorstOutcome(StrEnum):
    UNTOUCHED = "untouched"  # The call succeeds, and is as fast as without the fault.
    DONE = "done"  # The call succeeds, perhaps more slowly.
    LATER = "later"
    REFUSED = "refused"


ALLOWED = {
    WorstOutcome.UNTOUCHED: {Outcome.DONE},
    WorstOutcome.DONE: {Outcome.DONE},
    WorstOutcome.LATER: {Outcome.DONE, Outcome.LATER},
    WorstOutcome.REFUSED: {Outcome.DONE, Outcome.LATER, Outcome.REFUSED},
}


@dataclass(frozen=True)
class Promise:
    worst: WorstOutcome
    within_seconds: float  # For untouched calls, the full form also measures the slowdown.


# The maximum duration of a call: the time that the call asks the API to wait for a job, plus five
# seconds for everything else.
MAX_SECONDS = WAIT_SECONDS + 5.0

UNTOUCHED = Promise(WorstOutcome.UNTOUCHED, MAX_SECONDS)
DONE = Promise(WorstOutcome.DONE, 3.0)
SLOWLY = Promise(WorstOutcome.DONE, 15.0)
LATER = Promise(WorstOutcome.LATER, MAX_SECONDS)
REFUSED = Promise(WorstOutcome.REFUSED, MAX_SECONDS)
# The API refuses the call quickly, because the API doesn't wait for a lock, a connection or a
# failed service.
REFUSED_SOON = Promise(WorstOutcome.REFUSED, 3.0)

# The API needs S3 for uploads, media and imports. For an export, only the worker needs S3.
NEED_S3 = {"upload": REFUSED, "media": REFUSED, "import": REFUSED, "export": LATER}
# The calls of ``/readyz`` and ``/metrics`` check the dependencies. The API waits a second for a
# dependency that hangs, and caches the result of a check for a second.
WAITS_A_SECOND = dict.fromkeys(("readyz", "metrics"), DONE)
# The API calls for which the API uses Redis, for example to count the calls of a user. A fault of
# Redis doesn't affect other API calls.
NEED_REDIS = {
    **dict.fromkeys(
        ("balance", "consume", "subscribe", "unsubscribe", "member page", "event stream"), DONE
    ),
    **WAITS_A_SECOND,
    **dict.fromkeys(("upload", "import", "export"), LATER),
    "composer": REFUSED,
    "topup": REFUSED,
}


@dataclass(frozen=True)
class Row:
    """What the product promises during a fault.

    The worst outcomes are promises to operators and callers in docs/reliability.md, and not the
    results of measurements.

    Attributes:
        short_form_call: the only API call that the test makes during the fault by default.
        promises: the promises for the calls that the fault may affect.
        load: maps each call that causes load to its number of concurrent callers.
    """

    short_form_call: str
    promises: Mapping[str, Promise] = field(default_factory=dict)
    load: Mapping[str, int] = field(default_factory=dict)


MATRIX = {
    "Postgres slow": Row(
        "consume",
        dict.fromkeys(CALLS, SLOWLY)
        | dict.fromkeys(("upload", "import", "export"), Promise(WorstOutcome.LATER, 15.0))
        # Slow transactions keep their locks for a long time, so another call may find the list
        # locked.
        | dict.fromkeys(("subscribe", "composer", "topup"), Promise(WorstOutcome.REFUSED, 15.0)),
    ),
    "Postgres gone": Row("consume", dict.fromkeys(CALLS, REFUSED) | {"metrics": DONE}),
    "Redis hung": Row("composer", NEED_REDIS, {"composer": 4}),
    "Redis gone": Row("upload", NEED_REDIS, {"composer": 4}),
    "S3 hung": Row("balance", NEED_S3 | WAITS_A_SECOND, {"upload": 24, "media": 8}),
    "S3 refusing": Row("export", NEED_S3, {"upload": 8}),
    "S3 answering 503": Row("upload", NEED_S3, {"upload": 8}),
    "mail server hung": Row("composer", load={"confirmed subscribe": 24}),
    "model hung": Row("topup", {"composer": REFUSED}, {"composer": 8}),
    "photo provider hung": Row("topup", load={"photo search": 8}),
    "payment provider hung": Row("composer", {"topup": REFUSED}, {"topup": 8}),
    "one list locked": Row(
        "unsubscribe",
        {"subscribe": REFUSED_SOON, "unsubscribe": DONE, "import": LATER},
        {"subscribe": 24},
    ),
}
CELLS = [
    (fault, call)
    for fault, row in MATRIX.items()
    for call in CALLS
    if FULL or row.short_form_call == call
]


@pytest.fixture(scope="module")
def matrix_stack(make_stack: Callable[[str], Stack]) -> Iterator[Rig]:
    with open_rig(make_stack("matrix")) as opened:
        yield opened


@pytest.fixture(scope="module")
def undisturbed_calls(matrix_stack: Rig) -> Samples:
    """Measurements of API calls without any fault, for comparison with calls during a fault."""
    if not FULL:
        return {}
    matrix_stack.refill(LEAVING_SUBSCRIBERS)
    sample(matrix_stack, CALLS, QUIET_SECONDS)
    matrix_stack.refill(LEAVING_SUBSCRIBERS)
    return sample(matrix_stack, CALLS, QUIET_SECONDS)


@pytest.fixture(scope="module")
def observe_fault(
    matrix_stack: Rig, undisturbed_calls: Samples
) -> Iterator[Callable[[str], Observed]]:
    """A function that makes calls during a fault and returns their results.

    Each fault is caused only once per test run, and the results of the calls are cached.
    """
    results: dict[str, Observed] = {}

    def observe_once(fault: str) -> Observed:
        if fault not in results:
            calls = [call for other_fault, call in CELLS if other_fault == fault]
            results[fault] = observe(matrix_stack, FAULTS[fault], MATRIX[fault].load, calls)
        return results[fault]

    yield observe_once
    if FULL:
        REPORT_FILE.parent.mkdir(exist_ok=True)
        REPORT_FILE.write_text(_build_table(undisturbed_calls, results))


@pytest.mark.parametrize(("fault", "call"), CELLS, ids=[" x ".join(each) for each in CELLS])
def test_fault_of_one_dependency_harms_each_call_no_more_than_promised(
    fault: str,
    call: str,
    observe_fault: Callable[[str], Observed],
    undisturbed_calls: Samples,
) -> None:
    observed = observe_fault(fault)
    promise = _find_promise(fault, call)
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


def _find_promise(fault: str, call: str) -> Promise:
    return MATRIX[fault].promises.get(call, UNTOUCHED)


def _build_table(quiet: Samples, results: Mapping[str, Observed]) -> str:
    rows = [["call", *MATRIX], ["---"] * (len(MATRIX) + 1)]
    rows += [
        [call, *(_build_cell(fault, call, quiet, results.get(fault)) for fault in MATRIX)]
        for call in CALLS
    ]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in rows)


def _build_cell(fault: str, call: str, quiet: Samples, observed: Observed | None) -> str:
    worst = _find_promise(fault, call).worst
    if observed is None:
        return str(worst)
    if worst is WorstOutcome.UNTOUCHED:
        return f"{worst}, {slowdown(call, quiet, observed):.1f} ×"
    return f"{worst}, {p99(observed.during[call]):.1f} s"
