"""Compares the speed of bulk adds with plain SQL and with one API request per member.

There are three baselines. The first baseline fills Pressroom's tables with plain SQL. The second
baseline fills minimal tables with plain SQL. The third baseline adds each member with a separate
API request.
"""

import json
from collections.abc import Sequence
from functools import partial

from benchmarks.bulk_stack import BulkBench, Person, bulk_bench, create_people
from benchmarks.measure import Finding, alternate, is_full_size, measure_seconds, median_and_spread

MEMBERS = 100_000
SINGLE = 100
ROUNDS = 5 if is_full_size() else 3
MIN_SPEEDUP = 0.6
MIN_SPEEDUP_OF_LEAN = 0.4
MIN_SPEEDUP_OF_SINGLE = 30.0


def run() -> list[Finding]:
    with bulk_bench() as bench:
        return [
            _compare_new(bench),
            _compare_lean(bench),
            _compare_repeated(bench),
            _compare_single(bench),
        ]


def _compare_new(bench: BulkBench) -> Finding:
    def baseline() -> float:
        fresh, list_id = create_people(MEMBERS), bench.new_list()
        seconds = measure_seconds(lambda: bench.add_plainly(list_id, fresh))
        assert bench.count_members(list_id) == MEMBERS
        return seconds

    pairs = alternate(lambda: _measure_new(bench), baseline, rounds=ROUNDS)
    return _build_finding("bulk-add: 100,000 new members", pairs, MIN_SPEEDUP)


def _compare_lean(bench: BulkBench) -> Finding:
    """Compare the speed of bulk adds with plain SQL that fills minimal tables."""

    def baseline() -> float:
        fresh, before = create_people(MEMBERS), bench.count_lean_members()
        seconds = measure_seconds(lambda: bench.add_leanly(fresh))
        assert bench.count_lean_members() - before == MEMBERS
        return seconds

    bench.make_lean_tables()
    pairs = alternate(lambda: _measure_new(bench), baseline, rounds=ROUNDS)
    return _build_finding("bulk-lean: 100,000 new members", pairs, MIN_SPEEDUP_OF_LEAN)


def _measure_new(bench: BulkBench) -> float:
    body, list_id = _build_body(create_people(MEMBERS)), bench.new_list()
    seconds = measure_seconds(lambda: _add_members(bench, list_id, body, MEMBERS))
    assert bench.count_members(list_id) == MEMBERS
    return seconds


def _compare_repeated(bench: BulkBench) -> Finding:
    members = create_people(MEMBERS)
    body, list_id = _build_body(members), bench.new_list()
    _add_members(bench, list_id, body, MEMBERS)
    pairs = alternate(
        lambda: measure_seconds(lambda: _add_members(bench, list_id, body, 0)),
        lambda: measure_seconds(lambda: bench.add_plainly(list_id, members)),
        rounds=ROUNDS,
    )
    return _build_finding("bulk-again: 100,000 known members", pairs, MIN_SPEEDUP)


def _compare_single(bench: BulkBench) -> Finding:
    """Compare the speed of bulk adds with the speed of single adds."""

    def many() -> float:
        body, list_id = _build_body(create_people(MEMBERS)), bench.new_list()
        return measure_seconds(lambda: _add_members(bench, list_id, body, MEMBERS)) / MEMBERS

    def one() -> float:
        bodies, list_id = (
            [_build_body([person]) for person in create_people(SINGLE)],
            bench.new_list(),
        )
        times = [measure_seconds(partial(_add_members, bench, list_id, body, 1)) for body in bodies]
        return sum(times) / SINGLE

    pairs = alternate(many, one, rounds=3)
    ratio, spread = median_and_spread(
        [baseline_time / product_time for product_time, baseline_time in pairs]
    )
    details = {"many_per_s": _median_rate(pairs, 0), "one_per_s": _median_rate(pairs, 1)}
    met = ratio >= MIN_SPEEDUP_OF_SINGLE
    # The chart omits results with the unit "times", because their large values would compress the
    # chart's axis.
    return Finding("bulk-add: beside one a call", ratio, "times", "≥ 30 ×", met, spread, details)


def _median_rate(pairs: Sequence[tuple[float, float]], which: int) -> int:
    return round(1 / median_and_spread([pair[which] for pair in pairs])[0])


def _build_finding(name: str, pairs: list[tuple[float, float]], min_speedup: float) -> Finding:
    ratio, spread = median_and_spread(
        [baseline_time / product_time for product_time, baseline_time in pairs]
    )
    details = {
        "product_per_s": round(
            MEMBERS / median_and_spread([product_time for product_time, _ in pairs])[0]
        ),
        "baseline_per_s": round(
            MEMBERS / median_and_spread([baseline_time for _, baseline_time in pairs])[0]
        ),
    }
    return Finding(name, ratio, "×", f"≥ {min_speedup:g} ×", ratio >= min_speedup, spread, details)


def _build_body(members: Sequence[Person]) -> bytes:
    listed = [{"email": email, "name": name} for email, name in members]
    return json.dumps({"members": listed}).encode()


def _add_members(bench: BulkBench, list_id: int, body: bytes, expected: int) -> None:
    reply = bench.client.post(
        f"/auxilia/subscriptions/{list_id}/members/add",
        content=body,
        headers={"Content-Type": "application/json", "Prefer": "wait=60"},
    )
    assert (reply.status_code, reply.json()["data"]) == (200, expected), reply.text
