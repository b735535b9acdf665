"""Causes a fault, makes API calls during the fault and after it, and records the results."""

import statistics
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import httpx2

from benchmarks.measure import percentile
from tests.support.faults.calls import CALLS, LOAD_CALLS, Outcome, outcome_of
from tests.support.faults.faults import Fault, making_calls
from tests.support.faults.rig import LEAVING_SUBSCRIBERS, RECOVERED_WITHIN_SECONDS, Rig
from tests.support.sizes import FULL, sized

# The duration of each fault.
FAULT_SECONDS = sized(1, 10)
QUIET_SECONDS = sized(1, 10)
_PAUSE_SECONDS = 0.1
# A call fails if no response arrives within ``_TIMEOUT_SECONDS``, which is longer than every
# response time that Pressroom promises.
_TIMEOUT_SECONDS = 40.0


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
