"""The fault matrix: the outcome of each API call while one dependency is slow, hangs or is down.

By default, the test makes only one kind of API call during each fault, and ignores its duration.
With `PRESSROOM_SIZE=full`, the test makes all API calls during each fault. The full test also
checks that no call takes longer than promised, and compares the durations of calls with and without
the fault. The full test writes its results into build/fault-matrix.md.
"""

import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

import httpx2
import pytest

from benchmarks.measure import percentile
from devstack.harness.proxy import Proxy
from devstack.harness.stack import Stack
from tests.support.composer.composer_stack import build_unique_post
from tests.support.composer.composing import METADATA
from tests.support.credits import credits
from tests.support.faults.calls import CALLS, LOAD_CALLS, WAIT_SECONDS, Outcome, outcome_of
from tests.support.faults.faults import FAULTS, Fault, making_calls
from tests.support.faults.rig import LEAVING_SUBSCRIBERS, RECOVERED_WITHIN_SECONDS, Rig
from tests.support.http.replies import data
from tests.support.images.pictures import photo
from tests.support.lists.people_on_lists import new_list
from tests.support.sizes import FULL, sized
from tests.support.stack.proxied_dependencies import proxy_each_dependency

# Maps the queues of each worker to the worker's concurrency. The workers of the development stack
# have the same queues, but run more tasks concurrently than the workers in these tests.
WORKERS = {("request", "photos", "money", "mail", "maintenance"): 6, ("media", "export", "bulk"): 1}

# The duration of each fault.
FAULT_SECONDS = sized(1, 10)


QUIET_SECONDS = sized(1, 10)


_PAUSE_SECONDS = 0.1


# A call fails if no response arrives within ``_TIMEOUT_SECONDS``, which is longer than every
# response time that Pressroom promises.
_TIMEOUT_SECONDS = 40.0


@contextmanager
def open_rig(stack: Stack) -> Iterator[Rig]:
    with ExitStack() as opened:
        proxies = _start_processes(stack, opened)
        owner = stack.create_owner()
        credits.grant(stack, owner.user_id, "1000000")
        with stack.client(owner.key) as client:
            list_id = new_list(client)
            confirmed = new_list(client, confirm_required=True)
            files = {"file": ("photo.jpg", photo(320, 240))}
            upload = client.post("/attachments", files=files, headers={"Prefer": "wait=60"})
            path = f"/media/{data(upload)['filename']}"
            # The first call of the composer is slow, because the worker loads its language
            # libraries.
            prefer = {"Prefer": "wait=45"}
            client.post(METADATA, json=build_unique_post(), headers=prefer).raise_for_status()
        [[job_id]] = stack.query("SELECT max(id) FROM jobs")
        yield Rig(stack, proxies, owner, list_id, confirmed, path, int(str(job_id)))


def _start_processes(stack: Stack, opened: ExitStack) -> dict[str, Proxy]:
    stack.start_sandbox()
    proxies, through = proxy_each_dependency(stack, opened)
    # Set a rate limit that no caller reaches. Without a rate limit, the API wouldn't count requests
    # in Redis, so the tests wouldn't cover the counting.
    through["PRESSROOM_RATE_LIMIT_DEFAULT"] = "1000000/minute"
    stack.start_api(None, **through)
    for queues, concurrency in WORKERS.items():
        stack.start_worker(*queues, concurrency=concurrency, **through)
    return proxies


@dataclass(frozen=True)
class Sample:
    outcome: Outcome
    seconds: float
    response: str


Samples = dict[str, list[Sample]]


@dataclass(frozen=True)
class Observed:
    """The results of API calls during a fault and after it, and the jobs that were lost."""

    during: Samples
    after: Samples
    # The calls that didn't succeed within ten seconds after the fault, each with its last response.
    stuck: dict[str, str]
    lost: list[tuple[object, ...]]


def observe(rig: Rig, fault: Fault, load: Mapping[str, int], names: list[str]) -> Observed:
    """Make calls during a fault. ``load``: the number of concurrent callers by name of the call."""
    rig.refill(LEAVING_SUBSCRIBERS)
    since = rig.last_job()
    with rig.client() as client:
        rig.accept(client)
    calls = [LOAD_CALLS[name] for name, count in load.items() for _ in range(count)]
    with making_calls(rig, calls, pause=_PAUSE_SECONDS):
        with fault(rig):
            # Wait until the callers have sent their first calls, because callers cause load only
            # while they wait for responses.
            time.sleep(_PAUSE_SECONDS)
            during = sample(rig, names, FAULT_SECONDS)
        stuck = _find_stuck_calls(rig, names, time.monotonic() + RECOVERED_WITHIN_SECONDS)
    rig.refill(LEAVING_SUBSCRIBERS)
    after = sample(rig, names, QUIET_SECONDS) if FULL else {}
    return Observed(during, after, stuck, rig.lost(since))


def sample(rig: Rig, names: Iterable[str], seconds: float) -> Samples:
    """Make several calls at the same time, and repeat each call until ``seconds`` have passed."""
    calls = list(names)
    deadline = time.monotonic() + seconds
    with ThreadPoolExecutor(len(calls)) as threads:
        samples = threads.map(lambda name: list(_repeat(rig, name, deadline)), calls)
        return dict(zip(calls, samples, strict=True))


def _repeat(rig: Rig, name: str, deadline: float) -> Iterator[Sample]:
    with rig.client() as client:
        client.timeout = httpx2.Timeout(_TIMEOUT_SECONDS)
        yield _sample_call(rig, client, name)
        while time.monotonic() < deadline:
            time.sleep(_PAUSE_SECONDS)
            yield _sample_call(rig, client, name)


def _sample_call(rig: Rig, client: httpx2.Client, name: str) -> Sample:
    began = time.monotonic()
    try:
        reply = CALLS[name](rig, client)
        outcome = outcome_of(reply)
        response = f"{reply.status_code} {reply.text[:200]}"
    except httpx2.HTTPError as error:
        outcome = Outcome.BROKEN
        response = repr(error)
    return Sample(outcome, time.monotonic() - began, response)


def _find_stuck_calls(rig: Rig, names: list[str], deadline: float) -> dict[str, str]:
    """Return the calls that don't succeed before the deadline, with their last responses."""
    remaining = dict.fromkeys(names, "")
    with rig.client() as client:
        while remaining and time.monotonic() < deadline:
            for name in list(remaining):
                sample = _sample_call(rig, client, name)
                remaining[name] = sample.response
                if sample.outcome is Outcome.DONE:
                    del remaining[name]
    return remaining


def p50(samples: list[Sample]) -> float:
    return statistics.median(each.seconds for each in samples)


def p99(samples: list[Sample]) -> float:
    return percentile([each.seconds for each in samples], 0.99)


def slowdown(call: str, quiet: Samples, observed: Observed) -> float:
    """Return the factor by which the fault raises the 99th percentile of the response times.

    The 99th percentile of only about ninety response times is nearly the longest one, which differs
    a lot between two runs of the test. The function combines the response times before the fault
    with those after the fault, because more response times give a more stable percentile.
    """
    return p99(observed.during[call]) / p99(quiet[call] + observed.after.get(call, []))


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
