"""Compares the durations of API calls and maintenance on databases of different sizes.

Most benchmark cases do the same work on a small and on a large database, so their durations should
hardly differ. Only the cases in ``WORK_UNITS`` do more work on a larger database.
"""

from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack

from benchmarks.measure import Finding, median_and_spread
from benchmarks.scale.sized_stack import SizedStack, open_services, sized_stack
from benchmarks.scale.volume import Volume
from tests.growth.rounds import measure_round
from tests.growth.route_cases import Group

ROUNDS = 7
MAX_SLOWDOWN = 1.3
TARGET = "≤ 1.3 × the smallest database"

# Maps each benchmark case that does more work on a larger database to its unit of work. For the
# cases in ``WORK_UNITS``, the benchmark compares the durations per unit of work.
WORK_UNITS = {
    "credits.verify": "account",
    # The API must count the matching members, because the response contains their exact number.
    "GET /lists/{list_id}/subscriptions addresses that begin so": "member counted",
    "GET /lists/{list_id}/subscriptions on a paid tier": "member counted",
    "GET /lists/{list_id}/subscriptions unsubscribed": "member counted",
    "POST /lists/{list_id}/members/search a part of few names": "member counted",
    # The response counts each departure of the year.
    "GET /lists/{list_id}/stats by reason, a year": "departure counted",
    # The response counts all active members by their last open or click.
    "GET /lists/{list_id}/engagement": "member counted",
    # The maintenance task `maintenance.engagement` checks each recorded member of a changed list.
    "maintenance.engagement": "member checked",
    # The maintenance task `senders.silence` checks each large mailing of the last week.
    "senders.silence": "mailing",
}

# Maps the name of each benchmark case to its durations in seconds, one per round.
_Durations = dict[str, list[float]]


def compare_sizes(sizes: Sequence[float], keep: str | None) -> list[Finding]:
    """Fill a database of each size, and compare the smallest database with each larger one."""
    with open_services(keep) as (services, home), ExitStack() as opened:
        stacks = [
            opened.enter_context(sized_stack(services, home, Volume(size), number))
            for number, size in enumerate(sizes, start=1)
        ]
        return _compare_stacks(stacks)


def _compare_stacks(stacks: Sequence[SizedStack]) -> list[Finding]:
    durations: list[_Durations] = [defaultdict(list) for _ in stacks]
    groups: dict[str, Group] = {}
    # Round 0 only warms up caches, so its durations aren't used.
    for number in range(ROUNDS + 1):
        # In every second round, measure the stacks in reverse order, so that no stack is always
        # measured first.
        order = range(len(stacks))[:: 1 if number % 2 else -1]
        for group, name, seconds_per_stack in measure_round(stacks, order):
            groups[name] = group
            if number > 0:
                for stack_durations, seconds in zip(durations, seconds_per_stack, strict=True):
                    stack_durations[name].append(seconds)
        print(f"round {number} of {ROUNDS}", flush=True)
    names = sorted(groups, key=lambda name: [*Group].index(groups[name]))
    return [
        _build_finding(
            groups[name], name, (stacks[0], stack), (durations[0][name], stack_durations[name])
        )
        for stack, stack_durations in list(zip(stacks, durations, strict=True))[1:]
        for name in names
    ]


def _build_finding(
    group: Group,
    name: str,
    stacks: tuple[SizedStack, SizedStack],
    durations: tuple[Sequence[float], Sequence[float]],
) -> Finding:
    """Compare the durations of a benchmark case on a small and on a large database."""
    smallest_size, size = (stack.volume.factor for stack in stacks)
    work_ratio = size / smallest_size if name in WORK_UNITS else 1
    small_durations, large_durations = durations
    slowdown, spread = median_and_spread(
        [
            large / small / work_ratio
            for small, large in zip(small_durations, large_durations, strict=True)
        ]
    )
    details = {
        "group": group.value,
        "size": f"{size:g} ×",
        "by": WORK_UNITS.get(name, "run"),
        "ms_smallest": _median_milliseconds(small_durations),
        "ms": _median_milliseconds(large_durations),
    }
    return Finding(name, slowdown, "×", TARGET, slowdown <= MAX_SLOWDOWN, spread, details)


def _median_milliseconds(seconds: Sequence[float]) -> float:
    return round(1000 * median_and_spread(seconds)[0], 2)
