"""100,000 members in one request beside other ways to write them.

The same rows in the same tables by plain SQL, as many rows in two lean tables, and single adds.
"""

import json
from collections.abc import Sequence
from functools import partial

from benchmarks.bulk_stack import BulkBench, Person, bulk_bench, people
from benchmarks.measure import Finding, alternate, full_size, median_and_spread, seconds_of

MEMBERS = 100_000
SINGLE = 100
ROUNDS = 5 if full_size() else 3
LEAST_TIMES = 0.6
LEAST_TIMES_OF_LEAN = 0.4
LEAST_TIMES_OF_SINGLE = 30.0


def run() -> list[Finding]:
    with bulk_bench() as bench:
        return [_new(bench), _lean(bench), _again(bench), _single(bench)]


def _new(bench: BulkBench) -> Finding:
    def baseline() -> float:
        fresh, list_id = people(MEMBERS), bench.new_list()
        seconds = seconds_of(lambda: bench.add_plainly(list_id, fresh))
        assert bench.members(list_id) == MEMBERS
        return seconds

    pairs = alternate(lambda: _seconds_of_new(bench), baseline, rounds=ROUNDS)
    return _finding("bulk-add: 100,000 new members", pairs, LEAST_TIMES)


def _lean(bench: BulkBench) -> Finding:
    """Compare with two tables that have nothing to spare: what the product's own tables cost."""

    def baseline() -> float:
        fresh, before = people(MEMBERS), bench.lean_members()
        seconds = seconds_of(lambda: bench.add_leanly(fresh))
        assert bench.lean_members() - before == MEMBERS
        return seconds

    bench.make_lean_tables()
    pairs = alternate(lambda: _seconds_of_new(bench), baseline, rounds=ROUNDS)
    return _finding("bulk-lean: 100,000 new members", pairs, LEAST_TIMES_OF_LEAN)


def _seconds_of_new(bench: BulkBench) -> float:
    body, list_id = _body(people(MEMBERS)), bench.new_list()
    seconds = seconds_of(lambda: _add(bench, list_id, body, MEMBERS))
    assert bench.members(list_id) == MEMBERS
    return seconds


def _again(bench: BulkBench) -> Finding:
    known = people(MEMBERS)
    body, list_id = _body(known), bench.new_list()
    _add(bench, list_id, body, MEMBERS)
    pairs = alternate(
        lambda: seconds_of(lambda: _add(bench, list_id, body, 0)),
        lambda: seconds_of(lambda: bench.add_plainly(list_id, known)),
        rounds=ROUNDS,
    )
    return _finding("bulk-again: 100,000 known members", pairs, LEAST_TIMES)


def _single(bench: BulkBench) -> Finding:
    """The rate of one request of many beside that of many requests of one."""

    def many() -> float:
        body, list_id = _body(people(MEMBERS)), bench.new_list()
        return seconds_of(lambda: _add(bench, list_id, body, MEMBERS)) / MEMBERS

    def one() -> float:
        bodies, list_id = [_body([person]) for person in people(SINGLE)], bench.new_list()
        times = [seconds_of(partial(_add, bench, list_id, body, 1)) for body in bodies]
        return sum(times) / SINGLE

    pairs = alternate(many, one, rounds=3)
    ratio, spread = median_and_spread([theirs / mine for mine, theirs in pairs])
    details = {"many_per_s": _rate(pairs, 0), "one_per_s": _rate(pairs, 1)}
    met = ratio >= LEAST_TIMES_OF_SINGLE
    # Not drawn among the others, whose bars it would flatten.
    return Finding("bulk-add: beside one a call", ratio, "times", "≥ 30 ×", met, spread, details)


def _rate(pairs: Sequence[tuple[float, float]], which: int) -> int:
    return round(1 / median_and_spread([pair[which] for pair in pairs])[0])


def _finding(name: str, pairs: list[tuple[float, float]], least: float) -> Finding:
    ratio, spread = median_and_spread([theirs / mine for mine, theirs in pairs])
    details = {
        "product_per_s": round(MEMBERS / median_and_spread([mine for mine, _ in pairs])[0]),
        "baseline_per_s": round(MEMBERS / median_and_spread([theirs for _, theirs in pairs])[0]),
    }
    return Finding(name, ratio, "×", f"≥ {least:g} ×", ratio >= least, spread, details)


def _body(members: Sequence[Person]) -> bytes:
    listed = [{"email": email, "name": name} for email, name in members]
    return json.dumps({"members": listed}).encode()


def _add(bench: BulkBench, list_id: int, body: bytes, expected: int) -> None:
    reply = bench.client.post(
        f"/auxilia/subscriptions/{list_id}/members/add",
        content=body,
        headers={"Content-Type": "application/json", "Prefer": "wait=60"},
    )
    assert (reply.status_code, reply.json()["data"]) == (200, expected), reply.text
