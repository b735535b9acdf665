"""Tests that a sender's bodies delay no other sender, even if their processing fails or crashes.

The tests process the bodies in their own process. A ``BaseException`` in a statement ends the
processing as the death of a worker does, because nothing handles it.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import httpx2
import pytest
import sqlalchemy

from devstack.harness.stack import Stack
from services.jobs.waiting_work import MAX_UNFINISHED_TRIES
from services.senders import applying
from tests.support.http.replies import data
from tests.support.lists.subscribers import insert_members, new_address, new_list
from tests.support.senders.own_senders import new_sender
from tests.support.senders.posting import outcomes, post, report
from tests.support.stack.held_rows import uncommitted

TRIES = """
    SELECT failures, unfinished_tries, extract(epoch FROM due_at - now())::float
    FROM sender_bodies WHERE sender_id = %s ORDER BY id
"""


class Died(BaseException):
    pass


@pytest.fixture
def idle_stack(stack_without_workers: Stack) -> Stack:
    """A test stack without workers and without waiting bodies."""
    stack_without_workers.query("DELETE FROM sender_bodies")
    return stack_without_workers


@contextmanager
def observed(stack: Stack, observe: Callable[[str, str], None]) -> Iterator[None]:
    """Call ``observe`` with each SQL statement of this process, and with its parameters."""

    def listen(_connection: object, _cursor: object, *arguments: object) -> None:
        observe(str(arguments[0]), str(arguments[1]))

    engine = stack.resources.database.engine
    sqlalchemy.event.listen(engine, "before_cursor_execute", listen)
    try:
        yield
    finally:
        sqlalchemy.event.remove(engine, "before_cursor_execute", listen)


def fail_at(address: str, error: BaseException) -> Callable[[str, str], None]:
    """Return an observer that raises the error when a report about the address is processed."""

    def observe(_: str, parameters: str) -> None:
        if address in parameters:
            raise error

    return observe


def make_due(stack: Stack) -> None:
    stack.query("UPDATE sender_bodies SET due_at = now()")


def test_body_that_kills_its_worker_is_tried_ten_times_with_growing_pauses(
    idle_stack: Stack, client_without_workers: httpx2.Client
) -> None:
    sender, deadly_address = new_sender(client_without_workers), new_address()
    for email in (new_address(), deadly_address, new_address()):
        data(post(client_without_workers, sender, report("delivered", email=email)))
    pauses: list[float] = []
    with observed(idle_stack, fail_at(deadly_address, Died())):
        for _ in range(MAX_UNFINISHED_TRIES):
            with pytest.raises(Died):
                applying.apply_waiting_bodies(idle_stack.resources)
            pauses.append(max(float(str(row[2])) for row in idle_stack.query(TRIES, sender["id"])))
            make_due(idle_stack)
        applying.apply_waiting_bodies(idle_stack.resources)
    assert Counter(outcomes(client_without_workers, sender)) == {"unmatched": 2, "invalid": 1}
    assert idle_stack.query(TRIES, sender["id"]) == []
    assert 5 < pauses[0] <= 10
    assert all(later > 1.5 * earlier for earlier, later in pairwise(pauses[:-1]))
    assert pauses[-1] > 2_000


def test_failing_body_is_tried_for_a_day_and_delays_no_other_body(
    idle_stack: Stack, client_without_workers: httpx2.Client
) -> None:
    sender, bad_address = new_sender(client_without_workers), new_address()
    for email in (new_address(), bad_address, new_address()):
        data(post(client_without_workers, sender, report("delivered", email=email)))
    with observed(idle_stack, fail_at(bad_address, ValueError("a test"))):
        applying.apply_waiting_bodies(idle_stack.resources)
        assert outcomes(client_without_workers, sender) == ["unmatched", "unmatched"]
        for failures in range(2, 15):
            [(stored_failures, unfinished_tries, _)] = idle_stack.query(TRIES, sender["id"])
            assert (stored_failures, unfinished_tries) == (failures, 0)
            make_due(idle_stack)
            applying.apply_waiting_bodies(idle_stack.resources)
        idle_stack.query("UPDATE sender_bodies SET received_at = now() - interval '23.5 hours'")
        make_due(idle_stack)
        applying.apply_waiting_bodies(idle_stack.resources)
    assert outcomes(client_without_workers, sender) == ["unmatched", "unmatched", "invalid"]


def test_lock_uses_up_no_try(idle_stack: Stack, client_without_workers: httpx2.Client) -> None:
    list_id = int(new_list(client_without_workers)["id"])
    sender, email = new_sender(client_without_workers, list_ids=[list_id]), new_address()
    insert_members(idle_stack, list_id, [email])
    data(post(client_without_workers, sender, report("complained", email=email)))
    with uncommitted(idle_stack, "SELECT 1 FROM users WHERE email = %s FOR UPDATE", email):
        applying.apply_waiting_bodies(idle_stack.resources)
    [(failures, unfinished_tries, seconds)] = idle_stack.query(TRIES, sender["id"])
    assert (failures, unfinished_tries) == (0, 0)
    assert float(str(seconds)) <= 3
    make_due(idle_stack)
    applying.apply_waiting_bodies(idle_stack.resources)
    assert outcomes(client_without_workers, sender) == ["applied"]


def test_opt_outs_of_members_come_first_for_all_senders(
    idle_stack: Stack, client_without_workers: httpx2.Client
) -> None:
    list_id = int(new_list(client_without_workers)["id"])
    insert_members(idle_stack, list_id, [email := new_address()])
    senders = [new_sender(client_without_workers, list_ids=[list_id]) for _ in range(3)]
    for sender in senders[:2]:
        data(
            post(
                client_without_workers,
                sender,
                *(report("complained", email=new_address()) for _ in range(9)),
            )
        )
    data(post(client_without_workers, senders[2], report("complained", email=email)))
    writes: list[str] = []

    def observe(statement: str, _: str) -> None:
        writes.extend(
            table
            for table in ("opt_outs", "address_opt_outs")
            if f"INSERT INTO {table} " in statement
        )

    with observed(idle_stack, observe):
        assert applying.apply_waiting_bodies(idle_stack.resources) == 3
    assert writes == ["opt_outs", "address_opt_outs", "address_opt_outs"]


def test_members_in_opt_outs_are_looked_up_once(
    idle_stack: Stack, client_without_workers: httpx2.Client
) -> None:
    list_id = int(new_list(client_without_workers)["id"])
    sender = new_sender(client_without_workers, list_ids=[list_id])
    insert_members(idle_stack, list_id, emails := [new_address() for _ in range(3)])
    kinds = ("complained", "delivered", "unsubscribed")
    reports = [report(kind, email=email) for kind, email in zip(kinds, emails, strict=True)]
    data(post(client_without_workers, sender, *reports))
    lookups: Counter[str] = Counter()

    def observe(statement: str, parameters: str) -> None:
        if "SELECT DISTINCT ON (p.number, m.list_id)" in statement:
            lookups.update(email for email in emails if email in parameters)

    with observed(idle_stack, observe):
        assert applying.apply_waiting_bodies(idle_stack.resources) == 1
    assert lookups == dict.fromkeys(emails, 1)
    assert outcomes(client_without_workers, sender) == ["applied"] * 3


def test_killed_worker_resumes_a_body_after_the_last_transaction(
    idle_stack: Stack, client_without_workers: httpx2.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(applying, "MAX_TRANSACTION_COST", 10)
    list_id = int(new_list(client_without_workers)["id"])
    sender = new_sender(client_without_workers, list_ids=[list_id])
    emails = [new_address() for _ in range(35)]
    data(
        post(
            client_without_workers,
            sender,
            *(report("unsubscribed", email=email) for email in emails),
        )
    )
    batches = 0

    def die_at_the_third_batch(statement: str, _: str) -> None:
        nonlocal batches
        batches += "INSERT INTO sender_reports" in statement
        if batches == 3:
            batches += 1
            raise Died

    with observed(idle_stack, die_at_the_third_batch):
        with pytest.raises(Died):
            applying.apply_waiting_bodies(idle_stack.resources)
        assert Counter(outcomes(client_without_workers, sender)) == {"applied": 20}
        make_due(idle_stack)
        assert applying.apply_waiting_bodies(idle_stack.resources) == 1
    assert Counter(outcomes(client_without_workers, sender)) == {"applied": 35}
    count = "SELECT count(*) FROM address_opt_outs WHERE list_ids = ARRAY[%s::bigint]"
    assert idle_stack.query(count, list_id) == [(35,)]


def test_turn_ends_after_its_time_and_other_senders_follow(
    idle_stack: Stack, client_without_workers: httpx2.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(applying, "MAX_TURN_SECONDS", 0.0)
    monkeypatch.setattr(applying, "MAX_TRANSACTION_COST", 10)
    list_id = int(new_list(client_without_workers)["id"])
    senders: list[dict[str, Any]] = [
        new_sender(client_without_workers, list_ids=[list_id]) for _ in range(2)
    ]
    for sender in senders:
        data(
            post(
                client_without_workers,
                sender,
                *(report("delivered", email=new_address()) for _ in range(25)),
            )
        )
    order: list[str] = []

    def observe(statement: str, parameters: str) -> None:
        if "INSERT INTO sender_reports" in statement:
            order.append(
                next(str(s["id"]) for s in senders if f"'sender_id': {s['id']}" in parameters)
            )

    with observed(idle_stack, observe):
        assert applying.apply_waiting_bodies(idle_stack.resources) == 2
    assert Counter(order) == {str(sender["id"]): 3 for sender in senders}
    assert all(sender_id != next_id for sender_id, next_id in pairwise(order))


def test_opt_outs_of_a_large_body_are_stored_in_several_turns(
    idle_stack: Stack, client_without_workers: httpx2.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(applying, "MAX_TURN_SECONDS", 0.0)
    monkeypatch.setattr(applying, "_MAX_OPT_OUTS_PER_TRANSACTION", 2)
    list_id = int(new_list(client_without_workers)["id"])
    sender = new_sender(client_without_workers, list_ids=[list_id])
    emails = [new_address() for _ in range(7)]
    insert_members(idle_stack, list_id, emails)
    data(
        post(
            client_without_workers, sender, *(report("complained", email=email) for email in emails)
        )
    )
    turns = 0

    def count_turns(statement: str, _: str) -> None:
        nonlocal turns
        turns += "SET unfinished_tries=least" in statement

    with observed(idle_stack, count_turns):
        assert applying.apply_waiting_bodies(idle_stack.resources) == 1
    assert turns == 4
    assert outcomes(client_without_workers, sender) == ["applied"] * 7
    query = "SELECT DISTINCT status FROM subscriptions WHERE list_id = %s"
    assert idle_stack.query(query, list_id) == [("unsubscribed",)]
