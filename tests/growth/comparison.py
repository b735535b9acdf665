"""Every route and every kind of maintenance on a small database and on larger ones.

A caller asks for no more on a larger database, so the call should take no longer; there is more of
what ``EACH`` names.
"""

from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack

from benchmarks.measure import Finding, median_and_spread
from benchmarks.scale.sized_stack import SizedStack, open_services, sized_stack
from benchmarks.scale.volume import Volume
from tests.growth.rounds import one_round
from tests.growth.route_cases import Group

ROUNDS = 7
MOST_TIMES = 1.3
BAR = "≤ 1.3 × the smallest size"

# A platform that grows has more of these, and the case answers for each: what it takes is
# compared by one of them.
EACH = {
    "credits.verify": "account",
    # The totals of filters are exact.
    "GET /lists/{list_id}/subscriptions addresses that begin so": "member counted",
    "GET /lists/{list_id}/subscriptions on a paid tier": "member counted",
    "GET /lists/{list_id}/subscriptions unsubscribed": "member counted",
    "POST /lists/{list_id}/members/search a part of few names": "member counted",
}

# The seconds of a case of one size in one round.
_Times = dict[str, list[float]]


def run(sizes: Sequence[float] = (0.1, 1), keep: str | None = None) -> list[Finding]:
    """Compare the sizes; ``keep`` is a folder in which the filled databases stay."""
    with open_services(keep) as (services, home), ExitStack() as opened:
        sized = [
            opened.enter_context(sized_stack(services, home, Volume(size), number))
            for number, size in enumerate(sizes, start=1)
        ]
        return _compare(sized)


def _compare(sized: Sequence[SizedStack]) -> list[Finding]:
    took: list[_Times] = [defaultdict(list) for _ in sized]
    groups: dict[str, Group] = {}
    # The first round warms all of it up.
    for number in range(ROUNDS + 1):
        # The first changes, so that none always finds the machine as another left it.
        turns = range(len(sized))[:: 1 if number % 2 else -1]
        for group, name, seconds in one_round(sized, turns):
            groups[name] = group
            for times, each in zip(took, seconds, strict=True):
                times[name] += [each] * (number > 0)
        print(f"round {number} of {ROUNDS}", flush=True)
    names = sorted(groups, key=lambda name: [*Group].index(groups[name]))
    return [
        _finding(groups[name], name, (sized[0], each), (took[0][name], times[name]))
        for each, times in list(zip(sized, took, strict=True))[1:]
        for name in names
    ]


def _finding(
    group: Group,
    name: str,
    sized: tuple[SizedStack, SizedStack],
    took: tuple[Sequence[float], Sequence[float]],
) -> Finding:
    """A case on the smallest database and on another, and what it took there."""
    smallest, size = (each.volume.factor for each in sized)
    due = size / smallest if name in EACH else 1
    before, after = took
    growth, spread = median_and_spread([b / a / due for a, b in zip(before, after, strict=True)])
    details = {
        "group": group.value,
        "size": f"{size:g} ×",
        "by": EACH.get(name, "run"),
        "ms_smallest": _milliseconds(before),
        "ms": _milliseconds(after),
    }
    return Finding(name, growth, "×", BAR, growth <= MOST_TIMES, spread, details)


def _milliseconds(seconds: Sequence[float]) -> float:
    return round(1000 * median_and_spread(seconds)[0], 2)
