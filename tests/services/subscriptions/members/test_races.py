import random
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from core.ids import random_hash_id
from devstack.harness.polling import eventually
from devstack.harness.stack import Owner
from services.accounts import accounts
from services.subscriptions.members import locks
from tests.support.lists.acting import Acting, Person
from tests.support.lists.model import Reply
from tests.support.lists.racing import (
    AT_ONCE,
    Action,
    at_once,
    found_people,
    require_consistent,
    shown_count,
    true_count,
)
from tests.support.sizes import sized

ROUNDS = sized(6, 300)


@pytest.mark.parametrize("known", [True, False])
def test_concurrent_sign_ups_of_one_address_create_one_person_and_one_subscription(
    acting: Acting, list_ids: list[int], owner: Owner, known: bool
) -> None:
    reader = acting.new_person(with_login=known)
    list_id = list_ids[0]

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
    require_consistent(acting, list_ids, reader)
    assert shown_count(acting, list_id, owner) == 1


def test_person_who_unsubscribes_is_not_reactivated_by_concurrent_actions(
    acting: Acting, list_ids: list[int], owner: Owner, person_with_login: Person
) -> None:
    here, there = list_ids
    assert person_with_login.user_id is not None
    user_id, order = person_with_login.user_id, random.Random(1)
    for _ in range(ROUNDS):
        for list_id in list_ids:
            acting.reply(
                "POST", f"/subscriptions/{list_id}/no-challenge", key=person_with_login.key
            )
        together = bringing_back(acting, here, there, person_with_login, owner) * 2
        together += [lambda: acting.leave(here, user_id=user_id)]
        together += [lambda: acting.switch_mail(there, enabled=False, user_id=user_id)]
        order.shuffle(together)
        replies = at_once(together)
        # No action waits long for a list's lock.
        errors = {(409, "subscription.opted_out"), (503, "list.busy")}
        assert set(replies) <= {(200, 1), (200, 0), *errors}
        require_consistent(acting, list_ids, person_with_login)
        [(status,)] = acting.stack.query(
            "SELECT status FROM subscriptions WHERE list_id = %s AND user_id = %s", here, user_id
        )
        assert status != "active"


def bringing_back(
    acting: Acting, here: int, there: int, person: Person, owner: Owner
) -> list[Action]:
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


def test_opposite_member_transfers_do_not_deadlock_or_lose_members(
    acting: Acting, list_ids: list[int], owner: Owner
) -> None:
    here, there = list_ids
    addresses = [f"{random_hash_id()}@example.com" for _ in range(4)]
    asked = [acting.ask(of, address) for of in list_ids for address in addresses]
    assert set(asked) == {(200, 1)}
    people = found_people(acting, here)
    crossing: list[Action] = [
        partial(acting.transfer, *way, each.user_id or 0, owner.key)
        for each in people
        for way in [(here, there), (there, here)]
    ]
    replies = at_once(crossing * sized(10, 500))
    assert set(replies) <= {(200, 1), (200, 0), (503, "list.busy")}
    require_consistent(acting, list_ids, *people)
    # Each is on one of the lists: nobody is lost on the way, and nobody is on both.
    assert true_count(acting, here) + true_count(acting, there) == len(people)


@pytest.mark.tier("faults")
def test_concurrent_actions_store_nothing_about_a_person_during_their_erasure(
    acting: Acting, owner: Owner, list_ids: list[int]
) -> None:
    for _ in range(ROUNDS):
        reader = acting.new_person(with_login=True)
        assert reader.user_id is not None
        acting.ask(list_ids[0], reader.address)
        at_once(while_erasing(acting, list_ids, reader, owner))
        kept = acting.stack.query(
            "SELECT status, email_enabled, name, email FROM subscriptions WHERE user_id = %s",
            reader.user_id,
        )
        assert set(kept) == {("removed", False, None, None)}
        again = acting.stack.query("SELECT id FROM users WHERE email = %s", reader.address)
        assert (reader.user_id,) not in again
        for list_id in list_ids:
            assert shown_count(acting, list_id, owner) == true_count(acting, list_id)


def while_erasing(acting: Acting, lists: list[int], reader: Person, owner: Owner) -> list[Action]:
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


def test_member_action_waits_for_a_bulk_action_on_its_list_without_deadlock(
    acting: Acting, list_ids: list[int], owner: Owner
) -> None:
    """Both make the same person: whoever makes one holds the list already."""
    address = f"{random_hash_id()}@example.com"
    waits = "SELECT 1 FROM pg_locks WHERE NOT granted AND locktype = 'advisory'"
    with ThreadPoolExecutor(1) as threads:
        with acting.resources.unit_of_work() as uow:
            locks.lock_list(uow, list_ids[0])
            asking = threads.submit(acting.ask, list_ids[0], address)
            eventually(lambda: acting.stack.query(waits), what="the wait for the list")
            made = accounts.find_or_create_person(uow, address)
        assert asking.result(10) == (200, 1)
    require_consistent(acting, list_ids, Person(address, made.id))
    assert shown_count(acting, list_ids[0], owner) == 1
