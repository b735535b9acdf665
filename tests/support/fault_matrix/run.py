"""Brings a fault about, makes the calls of its cells, and sees what became of them."""

import statistics
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial

import httpx2

from benchmarks.measure import percentile
from tests.support.fault_matrix.calls import CALLS, PRESSING, Outcome, outcome_of
from tests.support.fault_matrix.faults import Fault
from tests.support.fault_matrix.rig import LEAVING, RECOVERED_WITHIN_SECONDS, Rig
from tests.support.sizes import FULL, sized
from tests.support.stack.load import repeated

# Postgres is gone for so long; so is everything else.
FAULT_SECONDS = sized(1, 10)
QUIET_SECONDS = sized(1, 10)
_PAUSE_SECONDS = 0.1
# No answer at all, which is never promised.
_HANGS_SECONDS = 40.0


@dataclass(frozen=True)
class Sample:
    outcome: Outcome
    seconds: float
    said: str


Samples = dict[str, list[Sample]]


@dataclass(frozen=True)
class Observed:
    """What became of the calls during a fault and after it, and of the work that was accepted."""

    during: Samples
    after: Samples
    # Calls that were not done within ten seconds after the fault, with the last answer.
    stuck: dict[str, str]
    lost: list[tuple[object, ...]]


def observe(rig: Rig, fault: Fault, names: list[str]) -> Observed:
    rig.refill(LEAVING)
    since = rig.last_job()
    with rig.client() as client:
        rig.accept(client)
    with pressed(rig, fault):
        with fault.begin(rig):
            # Until the callers who press wait, nothing presses.
            time.sleep(_PAUSE_SECONDS)
            during = sample(rig, names, FAULT_SECONDS)
        stuck = _stuck(rig, names, time.monotonic() + RECOVERED_WITHIN_SECONDS)
    rig.refill(LEAVING)
    after = sample(rig, names, QUIET_SECONDS) if FULL else {}
    return Observed(during, after, stuck, rig.lost(since))


def sample(rig: Rig, names: Iterable[str], seconds: float) -> Samples:
    """Each call again and again at the same time as the others, and each at least once."""
    chosen = list(names)
    until = time.monotonic() + seconds
    with ThreadPoolExecutor(len(chosen)) as threads:
        made = threads.map(lambda name: list(_repeat(rig, name, until)), chosen)
        return dict(zip(chosen, made, strict=True))


def _repeat(rig: Rig, name: str, until: float) -> Iterator[Sample]:
    with rig.client() as client:
        client.timeout = httpx2.Timeout(_HANGS_SECONDS)
        yield _call(rig, client, name)
        while time.monotonic() < until:
            time.sleep(_PAUSE_SECONDS)
            yield _call(rig, client, name)


def _call(rig: Rig, client: httpx2.Client, name: str) -> Sample:
    began = time.monotonic()
    try:
        reply = CALLS[name](rig, client)
        outcome, said = outcome_of(reply), f"{reply.status_code} {reply.text[:200]}"
    except httpx2.HTTPError as error:
        outcome, said = Outcome.BROKEN, repr(error)
    return Sample(outcome, time.monotonic() - began, said)


@contextmanager
def pressed(rig: Rig, fault: Fault) -> Iterator[None]:
    """With callers who need what is missing, until the block ends."""

    def press(name: str, client: httpx2.Client) -> None:
        # What becomes of these calls is asserted where they are cells.
        with suppress(httpx2.HTTPError):
            PRESSING[name](rig, client)

    callers = [name for name, count in fault.pressure.items() for _ in range(count)]
    with ExitStack() as opened:
        calls = [partial(press, name, opened.enter_context(rig.client())) for name in callers]
        with repeated(*calls, pause=_PAUSE_SECONDS):
            yield


def _stuck(rig: Rig, names: list[str], until: float) -> dict[str, str]:
    """Calls that are not done by then, with their last answers."""
    left = dict.fromkeys(names, "")
    with rig.client() as client:
        while left and time.monotonic() < until:
            for name in list(left):
                found = _call(rig, client, name)
                left[name] = found.said
                if found.outcome is Outcome.DONE:
                    del left[name]
    return left


def p50(samples: list[Sample]) -> float:
    return statistics.median(each.seconds for each in samples)


def p99(samples: list[Sample]) -> float:
    return percentile([each.seconds for each in samples], 0.99)


def slowdown(call: str, quiet: Samples, observed: Observed) -> float:
    """By how much the call's 99th percentile is above its quiet value.

    Of some ninety samples it is nearly the slowest, so the quiet times before and after the fault
    are taken together.
    """
    return p99(observed.during[call]) / p99(quiet[call] + observed.after.get(call, []))
