"""Each page of the console at a list of a million members, beside its cheapest page.

The database is that of a platform with 1,000 owners, of whom one has the most of everything. A
figure is the time from one caller's request to the whole answer, over loopback.
"""

import http.client
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

from benchmarks.measure import Finding, median_and_spread, seconds_of
from benchmarks.scale.page_cases import CHEAPEST, PageCase, page_cases
from benchmarks.scale.sized_stack import SizedStack, services_in, sized_stack
from benchmarks.scale.volume import Volume
from devstack import LOOPBACK
from services.mailing.attributes import tags
from tests.consoles import OwnerAtConsole, at_console, at_operators_console
from tests.security import world as worlds

ROUNDS = 7
MOST_SECONDS = 0.1
BAR = "≤ 100 ms"
MOST_BYTES = 100_000
WEIGHT_BAR = "≤ 100 KB"
_LOADED = re.compile(r'(?:script src|link rel="stylesheet" href)="https?://[^/"]+([^"]+)"')


@dataclass(frozen=True)
class _Answer:
    status: int
    body: bytes


_Get = Callable[[PageCase], _Answer]


def run(keep: str | None = None) -> list[Finding]:
    """Measure all pages; ``keep`` is a folder in which the filled database stays."""
    cases = page_cases()
    with (
        services_in(keep) as (services, home),
        sized_stack(services, home, Volume(1), 1) as sized,
        _callers(sized) as get,
    ):
        took, weights = _rounds(cases, get), _weights(cases, get)
    return [*_findings(cases, took, weights), _heaviest(weights)]


@contextmanager
def _callers(sized: SizedStack) -> Iterator[_Get]:
    """GET as the owner, or as an operator, each over a kept connection."""
    world = worlds.build(sized.stack, sized.owner, list_id=sized.list_id)
    worlds.settled(sized.stack)
    sized.stack.query(_DELIVERIES, world.values["endpoint_id"])
    values = world.values | _more_values(sized)
    with (
        closing(world.client),
        at_console(sized.stack, sized.owner) as owner,
        at_operators_console(sized.stack) as operator,
        closing(http.client.HTTPConnection(LOOPBACK, sized.stack.api_port, 60)) as kept,
    ):

        def get(case: PageCase) -> _Answer:
            visitor = operator if case.is_of_operators else owner
            kept.request("GET", case.path(values), headers={"Cookie": _cookies(visitor)})
            reply = kept.getresponse()
            return _Answer(reply.status, reply.read())

        yield get


def _cookies(visitor: OwnerAtConsole) -> str:
    found = visitor.visitor.client.cookies.jar
    return "; ".join(f"{each.name}={each.value}" for each in found)


def _rounds(cases: list[PageCase], get: _Get) -> dict[str, list[float]]:
    """The seconds that each page took, round by round; all take turns in each."""
    took: dict[str, list[float]] = defaultdict(list)
    # The first round warms all of it up.
    for number in range(ROUNDS + 1):
        # Who goes first changes, so that none always finds the machine as another left it.
        for case in cases[:: 1 if number % 2 else -1]:
            answers: list[_Answer] = []
            seconds = seconds_of(lambda case=case, to=answers: to.append(get(case)))  # type: ignore[misc]
            assert answers[0].status == case.status, f"{case.title}: {answers[0]}"
            if number > 0:
                took[case.title].append(seconds)
        print(f"round {number} of {ROUNDS}", flush=True)
    return took


def _weights(cases: list[PageCase], get: _Get) -> dict[str, int]:
    """The bytes of each page with the scripts and styles that it loads."""
    loaded: dict[str, int] = {}

    def weight(body: bytes) -> int:
        paths = _LOADED.findall(body.decode())
        for path in paths:
            if path not in loaded:
                loaded[path] = len(get(PageCase(f"GET {path}", cases[0].call)).body)
        return len(body) + sum(loaded[path] for path in paths)

    return {case.title: weight(get(case).body) for case in cases}


def _findings(
    cases: list[PageCase], took: Mapping[str, list[float]], weights: Mapping[str, int]
) -> Iterator[Finding]:
    [cheapest] = [case.title for case in cases if case.operation == CHEAPEST]
    for case in cases:
        mine, beside = took[case.title], took[cheapest]
        seconds, (low, high) = median_and_spread(mine)
        ratio, _ = median_and_spread([a / b for a, b in zip(mine, beside, strict=True)])
        details = {
            "times_the_cheapest": round(ratio, 2),
            "cheapest_ms": round(1000 * median_and_spread(beside)[0], 2),
            "kb": round(weights[case.title] / 1000, 1),
        }
        spread, is_met = (1000 * low, 1000 * high), seconds <= MOST_SECONDS
        yield Finding(case.title, 1000 * seconds, "ms", BAR, is_met, spread, details)


def _heaviest(weights: Mapping[str, int]) -> Finding:
    heaviest = max(weights, key=weights.__getitem__)
    kilobytes = weights[heaviest] / 1000
    return Finding(
        "console-pages: the heaviest page",
        kilobytes,
        "KB",
        WEIGHT_BAR,
        weights[heaviest] <= MOST_BYTES,
        (min(weights.values()) / 1000, kilobytes),
        {"page": heaviest},
    )


# -- what the cases name -------------------------------------------------------------------------


def _more_values(sized: SizedStack) -> dict[str, Any]:
    """What is large or far down, beside the things of the owner that tests know."""
    stack, numbers = sized.stack, sized.volume.numbers()
    with stack.resources.unit_of_work() as uow:
        vip = tags.tag_ids_of(uow, sized.list_id, ("vip",), make=False)["vip"]
    [(segment_id,)] = stack.query(
        "SELECT id FROM segments WHERE list_id = %s AND name = 'Segment 1'", sized.list_id
    )
    [(import_id,)] = stack.query(
        "SELECT import_id FROM import_changes JOIN imports ON imports.id = import_id"
        " WHERE user_id = %s GROUP BY import_id ORDER BY count(*) DESC LIMIT 1",
        sized.owner.user_id,
    )
    [(entry_id,)] = stack.query(
        "SELECT id FROM credit_entries WHERE user_id = %s AND seq = %s",
        sized.owner.user_id,
        numbers["largest_account"] // 2,
    )
    return {
        "vip_tag_id": vip,
        "vip_segment_id": segment_id,
        "old_import_id": import_id,
        "entry_id": entry_id,
        "subscription_id": numbers["half"] // 2,
    }


# As many as an endpoint has in some days.
_DELIVERIES = """
INSERT INTO webhook_deliveries (endpoint_id, event_type, status, attempts, round_attempts,
    delivered_at, last_attempt_at, status_code, milliseconds, answer)
SELECT %s, 'subscription.created', 'delivered', 1, 1, now(), now(), 200, 40,
    repeat('ok ', 100)::bytea
FROM generate_series(1, 20000)
"""
