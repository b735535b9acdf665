"""What many do to the same subscriptions at once, and what is true when they are done."""

import itertools
import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path

import httpx
import pytest

from core.ids import random_hash_id
from devstack.ports import PortPicker
from services.subscriptions import counts
from tests.faults.size import sized
from tests.services.subscriptions.acting import Acting, Person
from tests.services.subscriptions.model import Reply
from tests.services.subscriptions.observed import (
    People,
    observe,
    require_counts_are_true,
    require_opt_outs_hold,
    require_unbroken_history,
)
from tests.stack import Owner, Stack, eventually

AT_ONCE = 16
ROUNDS = sized(6, 300)
MANY = sized(400, 20_000)

Act = Callable[[], Reply]


@pytest.fixture
def acting(stack: Stack) -> Iterator[Acting]:
    with stack.client() as client:
        yield Acting(stack, client)


@pytest.fixture
def lists(acting: Acting, owner: Owner) -> list[int]:
    """Two of one owner's."""
    return [acting.new_list(owner, confirm_required=False, challenge=False) for _ in range(2)]


@pytest.fixture
def person(acting: Acting) -> Person:
    return acting.new_person(with_login=True)


@pytest.fixture(autouse=True)
def _no_deadlock(stack: Stack) -> Iterator[None]:
    """Postgres breaks a deadlock after a second, and counts it."""
    before = deadlocks(stack)
    yield
    assert deadlocks(stack) == before


def deadlocks(stack: Stack) -> object:
    stack.query("SELECT pg_stat_force_next_flush()")
    [(found,)] = stack.query(
        "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    )
    return found


def at_once(acts: list[Act]) -> list[Reply]:
    """Do all of them, so many at a time, and begin the first of them together."""
    together = threading.Barrier(min(AT_ONCE, len(acts)))

    def begin(number: int, act: Act) -> Reply:
        if number < together.parties:
            together.wait(10)
        return act()

    with ThreadPoolExecutor(AT_ONCE) as threads:
        return list(threads.map(begin, itertools.count(), acts))


def require_consistent(acting: Acting, lists: list[int], *people: Person) -> None:
    known = People(
        [each.address for each in people],
        {each.user_id: each.address for each in people if each.user_id},
    )
    seen = observe(acting.resources, lists, known)
    require_opt_outs_hold(seen, known)
    require_counts_are_true(seen)
    require_unbroken_history(seen)


def shown_count(acting: Acting, list_id: int, owner: Owner) -> int:
    headers = {"Authorization": f"Bearer {owner.key}"}
    reply = acting.client.get(f"/lists/{list_id}", headers=headers)
    return int(reply.json()["data"]["subscriber_count"])


def true_count(acting: Acting, list_id: int) -> int:
    [(found,)] = acting.stack.query(
        "SELECT count(*) FROM subscriptions WHERE list_id = %s AND status = 'active'", list_id
    )
    return int(str(found))


@pytest.mark.parametrize("known", [True, False])
def test_an_address_subscribed_many_times_at_once_is_one_person_and_one_subscription(
    acting: Acting, lists: list[int], owner: Owner, known: bool
) -> None:
    reader = acting.new_person(with_login=known)
    list_id = lists[0]

    def ask() -> Reply:
        return acting.ask(list_id, reader.address)

    def join() -> Reply:
        return acting.reply("POST", f"/subscriptions/{list_id}/no-challenge", key=reader.key)

    replies = at_once([ask, join if known else ask] * AT_ONCE)
    assert set(replies) <= {(200, 1), (200, 0)}
    assert set(replies[::2]) == {(200, 1)}
    [(user_id,)] = acting.stack.query("SELECT id FROM users WHERE email = %s", reader.address)
    reader.user_id = int(str(user_id))
    [(_, actions)] = acting.stack.query(
        "SELECT user_id, array_agg(action) FROM subscription_events WHERE list_id = %s"
        " GROUP BY user_id",
        list_id,
    )
    assert actions in (["requested"], ["subscribed"])
    require_consistent(acting, lists, reader)
    assert shown_count(acting, list_id, owner) == 1


def test_who_leaves_while_they_are_brought_back_is_out(
    acting: Acting, lists: list[int], owner: Owner, person: Person
) -> None:
    here, there = lists
    assert person.user_id is not None
    user_id, order = person.user_id, random.Random(1)
    for _ in range(ROUNDS):
        for list_id in lists:
            acting.reply("POST", f"/subscriptions/{list_id}/no-challenge", key=person.key)
        acts = bringing_back(acting, here, there, person, owner) * 2
        acts += [lambda: acting.leave(here, user_id=user_id)]
        acts += [lambda: acting.switch_mail(there, enabled=False, user_id=user_id)]
        order.shuffle(acts)
        replies = at_once(acts)
        assert set(replies) <= {(200, 1), (200, 0), (409, "subscription.opted_out")}
        require_consistent(acting, lists, person)
        [(status,)] = acting.stack.query(
            "SELECT status FROM subscriptions WHERE list_id = %s AND user_id = %s", here, user_id
        )
        assert status != "active"


def bringing_back(acting: Acting, here: int, there: int, person: Person, owner: Owner) -> list[Act]:
    user_id = person.user_id or 0

    def mail_on() -> Reply:
        path = f"/subscriptions/{there}/members/{user_id}/email"
        return acting.reply("PUT", path, key=owner.key, json={"enabled": True})

    return [
        lambda: acting.ask(here, person.address),
        lambda: acting.ask(there, person.address),
        lambda: acting.transfer(here, there, user_id, owner.key),
        lambda: acting.transfer(there, here, user_id, owner.key),
        lambda: acting.remove(there, user_id, owner.key),
        mail_on,
    ]


def test_counts_are_true_after_many_changes_at_once_beside_their_folding(
    acting: Acting, lists: list[int], owner: Owner
) -> None:
    with folding(acting):
        replies = at_once(many_acts(acting, lists[0], owner))
    assert set(replies) <= {(200, 1), (200, 0)}
    assert true_count(acting, lists[0]) > 0
    assert shown_count(acting, lists[0], owner) == true_count(acting, lists[0])
    require_consistent(acting, lists, *found_people(acting, lists[0]))


def many_acts(acting: Acting, list_id: int, owner: Owner) -> list[Act]:
    """Half subscribe new people; the others leave, come back or are removed, some at once."""
    known = [acting.new_person(with_login=True) for _ in range(MANY // 20)]

    def ask() -> Reply:
        return acting.ask(list_id, f"{random_hash_id()}@example.com")

    def of(each: Person) -> list[Act]:
        user_id = each.user_id or 0
        path = f"/subscriptions/{list_id}/no-challenge"

        def remove() -> Reply:
            status, data = acting.remove(list_id, user_id, owner.key)
            # Who has not come yet can't be removed.
            return (200, 0) if data == "member.not_found" else (status, data)

        return [
            lambda: acting.reply("POST", path, key=each.key),
            lambda: acting.leave(list_id, key=each.key),
            lambda: acting.reply("POST", path, key=each.key),
            remove,
            lambda: acting.leave(list_id, user_id=user_id),
            lambda: acting.ask(list_id, each.address),
            lambda: acting.reply("POST", path, key=each.key),
            remove,
            lambda: acting.reply("POST", path, key=each.key),
        ]

    acts = [act for each in known for act in of(each)]
    acts += [ask] * (MANY - len(acts))
    random.Random(2).shuffle(acts)
    return acts


class folding:  # noqa: N801 - reads as what goes on
    """Counts are folded all the while, by two at once."""

    def __init__(self, acting: Acting) -> None:
        self._stop, self._threads = threading.Event(), ThreadPoolExecutor(2)
        self._runs = [self._threads.submit(self._run, acting) for _ in range(2)]

    def _run(self, acting: Acting) -> None:
        while not self._stop.wait(0.01):
            with acting.resources.unit_of_work() as uow:
                counts.fold(uow, most=7)

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for run in self._runs:
            run.result(30)
        self._threads.shutdown()


def found_people(acting: Acting, list_id: int) -> list[Person]:
    rows = acting.stack.query(
        "SELECT email, id FROM users WHERE id IN"
        " (SELECT user_id FROM subscriptions WHERE list_id = %s"
        " UNION SELECT user_id FROM opt_outs WHERE list_id = %s)",
        list_id,
        list_id,
    )
    return [Person(str(email), int(str(user_id))) for email, user_id in rows]


def test_transfers_that_cross_each_other_do_not_wait_for_each_other_for_ever(
    acting: Acting, lists: list[int], owner: Owner
) -> None:
    here, there = lists
    addresses = [f"{random_hash_id()}@example.com" for _ in range(4)]
    at_once([partial(acting.ask, of, address) for of in lists for address in addresses])
    people = found_people(acting, here)
    crossing: list[Act] = [
        partial(acting.transfer, *way, each.user_id or 0, owner.key)
        for each in people
        for way in [(here, there), (there, here)]
    ]
    replies = at_once(crossing * sized(10, 500))
    assert set(replies) <= {(200, 1), (200, 0)}
    require_consistent(acting, lists, *people)
    # Each is on one of the lists: nobody is lost on the way, and nobody is on both.
    assert true_count(acting, here) + true_count(acting, there) == len(people)


def test_counts_are_true_after_the_api_is_killed_in_the_middle(
    acting: Acting, lists: list[int], owner: Owner, home: Path
) -> None:
    for _ in range(sized(1, 30)):
        _kill_in_the_middle(acting, lists[0], PortPicker(home / "killed.json").pick("api"))
        eventually(lambda: _idle(acting.stack), what="the end of the killed process's connections")
        assert shown_count(acting, lists[0], owner) == true_count(acting, lists[0])
        require_consistent(acting, lists, *found_people(acting, lists[0]))


def _kill_in_the_middle(acting: Acting, list_id: int, port: int) -> None:
    running = acting.stack.start_api(port)
    answered, enough = itertools.count(1), threading.Event()

    def ask(client: httpx.Client) -> None:
        while True:
            body = {"email": f"{random_hash_id()}@example.com"}
            try:
                reply = client.post(f"/subscriptions/{list_id}", json=body)
            except httpx.HTTPError:
                return
            assert reply.status_code == 200, reply.text
            if next(answered) == 20:
                enough.set()

    with (
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=20) as client,
        ThreadPoolExecutor(AT_ONCE) as threads,
    ):
        asking = [threads.submit(ask, client) for _ in range(AT_ONCE)]
        enough.wait(30)
        running.kill()
        acting.stack.processes.remove(running)
        for each in wait(asking).done:
            each.result()


def _idle(stack: Stack) -> bool:
    [(busy,)] = stack.query(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        " AND application_name = 'pressroom-api' AND state <> 'idle'"
    )
    return busy == 0


def test_nothing_is_written_down_of_a_person_while_they_are_erased(
    acting: Acting, owner: Owner, lists: list[int]
) -> None:
    for _ in range(ROUNDS):
        reader = acting.new_person(with_login=True)
        assert reader.user_id is not None
        acting.ask(lists[0], reader.address)
        at_once(while_erasing(acting, lists, reader, owner))
        kept = acting.stack.query(
            "SELECT status, email_enabled, name, email FROM subscriptions WHERE user_id = %s",
            reader.user_id,
        )
        assert set(kept) == {("removed", False, None, None)}
        again = acting.stack.query("SELECT id FROM users WHERE email = %s", reader.address)
        assert (reader.user_id,) not in again
        for list_id in lists:
            assert shown_count(acting, list_id, owner) == true_count(acting, list_id)


def while_erasing(acting: Acting, lists: list[int], reader: Person, owner: Owner) -> list[Act]:
    here, there = lists
    user_id = reader.user_id or 0

    def erase() -> Reply:
        acting.erase(reader.address)
        return 200, 1

    def rename() -> Reply:
        path = f"/lists/{here}/members/{user_id}"
        return acting.reply("PATCH", path, key=owner.key, json={"name": "Ada Reader"})

    strangers = [partial(acting.ask, of, reader.address) for of in lists]
    return [
        *strangers,
        erase,
        rename,
        *strangers,
        lambda: acting.reply("POST", f"/subscriptions/{there}/no-challenge", key=reader.key),
        lambda: acting.transfer(here, there, user_id, owner.key),
        lambda: acting.leave(here, user_id=user_id),
        rename,
    ]
