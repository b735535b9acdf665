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
from services.jobs.tries import MAX_UNFINISHED_TRIES
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
def stack(stack_without_workers: Stack) -> Stack:
    stack_without_workers.query("DELETE FROM sender_bodies")
    return stack_without_workers


@pytest.fixture
def client(client_without_workers: httpx2.Client) -> httpx2.Client:
    return client_without_workers


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
    stack: Stack, client: httpx2.Client
) -> None:
    sender, deadly_address = new_sender(client), new_address()
    for email in (new_address(), deadly_address, new_address()):
        data(post(client, sender, report("delivered", email=email)))
    pauses: list[float] = []
    with observed(stack, fail_at(deadly_address, Died())):
        for _ in range(MAX_UNFINISHED_TRIES):
            with pytest.raises(Died):
                applying.apply_waiting_bodies(stack.resources)
            pauses.append(max(float(str(row[2])) for row in stack.query(TRIES, sender["id"])))
            make_due(stack)
        applying.apply_waiting_bodies(stack.resources)
    assert Counter(outcomes(client, sender)) == {"unmatched": 2, "invalid": 1}
    assert stack.query(TRIES, sender["id"]) == []
    assert 5 < pauses[0] <= 10
    assert all(later > 1.5 * earlier for earlier, later in pairwise(pauses[:-1]))
    assert pauses[-1] > 2_000


def test_failing_body_is_tried_for_a_day_and_delays_no_other_body(
    stack: Stack, client: httpx2.Client
) -> None:
    sender, bad_address = new_sender(client), new_address()
    for email in (new_address(), bad_address, new_address()):
        data(post(client, sender, report("delivered", email=email)))
    with observed(stack, fail_at(bad_address, ValueError("a test"))):
        applying.apply_waiting_bodies(stack.resources)
        assert outcomes(client, sender) == ["unmatched", "unmatched"]
        for failures in range(2, 15):
            [(stored_failures, unfinished_tries, _)] = stack.query(TRIES, sender["id"])
            assert (stored_failures, unfinished_tries) == (failures, 0)
            make_due(stack)
            applying.apply_waiting_bodies(stack.resources)
        stack.query("UPDATE sender_bodies SET received_at = now() - interval '23.5 hours'")
        make_due(stack)
        applying.apply_waiting_bodies(stack.resources)
    assert outcomes(client, sender) == ["unmatched", "unmatched", "invalid"]


def test_lock_uses_up_no_try(stack: Stack, client: httpx2.Client) -> None:
    list_id = int(new_list(client)["id"])
    sender, email = new_sender(client, list_ids=[list_id]), new_address()
    insert_members(stack, list_id, [email])
    data(post(client, sender, report("complained", email=email)))
    with uncommitted(stack, "SELECT 1 FROM users WHERE email = %s FOR UPDATE", email):
        applying.apply_waiting_bodies(stack.resources)
    [(failures, unfinished_tries, seconds)] = stack.query(TRIES, sender["id"])
    assert (failures, unfinished_tries) == (0, 0)
    assert float(str(seconds)) <= 3
    make_due(stack)
    applying.apply_waiting_bodies(stack.resources)
    assert outcomes(client, sender) == ["applied"]


def test_opt_outs_of_members_come_first_for_all_senders(
    stack: Stack, client: httpx2.Client
) -> None:
    list_id = int(new_list(client)["id"])
    insert_members(stack, list_id, [email := new_address()])
    senders = [new_sender(client, list_ids=[list_id]) for _ in range(3)]
    for sender in senders[:2]:
        data(post(client, sender, *(report("complained", email=new_address()) for _ in range(9))))
    data(post(client, senders[2], report("complained", email=email)))
    writes: list[str] = []

    def observe(statement: str, _: str) -> None:
        writes.extend(
            table
            for table in ("opt_outs", "address_opt_outs")
            if f"INSERT INTO {table} " in statement
        )

    with observed(stack, observe):
        assert applying.apply_waiting_bodies(stack.resources) == 3
    assert writes == ["opt_outs", "address_opt_outs", "address_opt_outs"]


def test_killed_worker_resumes_a_body_after_the_last_transaction(
    stack: Stack, client: httpx2.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(applying, "MAX_TRANSACTION_COST", 10)
    list_id = int(new_list(client)["id"])
    sender = new_sender(client, list_ids=[list_id])
    emails = [new_address() for _ in range(35)]
    data(post(client, sender, *(report("unsubscribed", email=email) for email in emails)))
    batches = 0

    def die_at_the_third_batch(statement: str, _: str) -> None:
        nonlocal batches
        batches += "INSERT INTO sender_reports" in statement
        if batches == 3:
            batches += 1
            raise Died

    with observed(stack, die_at_the_third_batch):
        with pytest.raises(Died):
            applying.apply_waiting_bodies(stack.resources)
        assert Counter(outcomes(client, sender)) == {"applied": 20}
        make_due(stack)
        assert applying.apply_waiting_bodies(stack.resources) == 1
    assert Counter(outcomes(client, sender)) == {"applied": 35}
    count = "SELECT count(*) FROM address_opt_outs WHERE list_ids = ARRAY[%s::bigint]"
    assert stack.query(count, list_id) == [(35,)]


def test_turn_ends_after_its_time_and_other_senders_follow(
    stack: Stack, client: httpx2.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(applying, "MAX_TURN_SECONDS", 0.0)
    monkeypatch.setattr(applying, "MAX_TRANSACTION_COST", 10)
    list_id = int(new_list(client)["id"])
    senders: list[dict[str, Any]] = [new_sender(client, list_ids=[list_id]) for _ in range(2)]
    for sender in senders:
        data(post(client, sender, *(report("delivered", email=new_address()) for _ in range(25))))
    order: list[str] = []

    def observe(statement: str, parameters: str) -> None:
        if "INSERT INTO sender_reports" in statement:
            order.append(
                next(str(s["id"]) for s in senders if f"'sender_id': {s['id']}" in parameters)
            )

    with observed(stack, observe):
        assert applying.apply_waiting_bodies(stack.resources) == 2
    assert Counter(order) == {str(sender["id"]): 3 for sender in senders}
    assert all(sender_id != next_id for sender_id, next_id in pairwise(order))


def test_opt_outs_of_a_large_body_are_stored_in_several_turns(
    stack: Stack, client: httpx2.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(applying, "MAX_TURN_SECONDS", 0.0)
    monkeypatch.setattr(applying, "_MAX_OPT_OUTS_PER_TRANSACTION", 2)
    list_id = int(new_list(client)["id"])
    sender = new_sender(client, list_ids=[list_id])
    emails = [new_address() for _ in range(7)]
    insert_members(stack, list_id, emails)
    data(post(client, sender, *(report("complained", email=email) for email in emails)))
    assert applying.apply_waiting_bodies(stack.resources) == 1
    assert outcomes(client, sender) == ["applied"] * 7
    query = "SELECT DISTINCT status FROM subscriptions WHERE list_id = %s"
    assert stack.query(query, list_id) == [("unsubscribed",)]
