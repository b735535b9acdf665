import random
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from core.ids import random_hash_id
from devstack.harness.polling import eventually
from devstack.harness.stack import Owner
from services.accounts import accounts
from services.subscriptions.members import locks
from tests.support.lists.acting import ListActions, Person
from tests.support.lists.model import Reply
from tests.support.lists.racing import (
    MAX_CONCURRENT_ACTIONS,
    Action,
    find_people,
    require_consistent,
    run_at_once,
    shown_count,
    true_count,
)
from tests.support.sizes import sized

ROUND_COUNT = sized(6, 300)


@pytest.mark.parametrize("is_known", [True, False])
def test_concurrent_sign_ups_of_one_address_create_one_person_and_one_subscription(
    acting: ListActions, list_ids: list[int], owner: Owner, is_known: bool
) -> None:
    reader = acting.new_person(with_login=is_known)
    list_id = list_ids[0]

    def ask() -> Reply:
        return acting.ask(list_id, reader.address)

    def join() -> Reply:
        return acting.reply("POST", f"/subscriptions/{list_id}/no-challenge", key=reader.key)

    replies = run_at_once([ask, join if is_known else ask] * MAX_CONCURRENT_ACTIONS)
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
    acting: ListActions, list_ids: list[int], owner: Owner, person_with_login: Person
) -> None:
    first_list_id, second_list_id = list_ids
    assert person_with_login.user_id is not None
    user_id = person_with_login.user_id
    order = random.Random(1)
    for _ in range(ROUND_COUNT):
        for list_id in list_ids:
            acting.reply(
                "POST", f"/subscriptions/{list_id}/no-challenge", key=person_with_login.key
            )
        actions = (
            build_reactivating_actions(
                acting, first_list_id, second_list_id, person_with_login, owner
            )
            * 2
        )
        actions += [lambda: acting.leave(first_list_id, user_id=user_id)]
        actions += [lambda: acting.switch_mail(second_list_id, enabled=False, user_id=user_id)]
        order.shuffle(actions)
        replies = run_at_once(actions)
        # No action waits long for a list's lock.
        errors = {(409, "subscription.opted_out"), (503, "list.busy")}
        assert set(replies) <= {(200, 1), (200, 0), *errors}
        require_consistent(acting, list_ids, person_with_login)
        [(status,)] = acting.stack.query(
            "SELECT status FROM subscriptions WHERE list_id = %s AND user_id = %s",
            first_list_id,
            user_id,
        )
        assert status != "active"


def build_reactivating_actions(
    acting: ListActions, first_list_id: int, second_list_id: int, person: Person, owner: Owner
) -> list[Action]:
    user_id = person.user_id or 0

    def mail_on() -> Reply:
        path = f"/subscriptions/{second_list_id}/members/{user_id}/email"
        return acting.reply("PUT", path, key=owner.key, json={"enabled": True})

    return [
        lambda: acting.ask(first_list_id, person.address),
        lambda: acting.ask(second_list_id, person.address),
        lambda: acting.transfer(first_list_id, second_list_id, user_id, owner.key),
        lambda: acting.transfer(second_list_id, first_list_id, user_id, owner.key),
        lambda: acting.remove(second_list_id, user_id, owner.key),
        mail_on,
    ]


def test_opposite_member_transfers_do_not_deadlock_or_lose_members(
    acting: ListActions, list_ids: list[int], owner: Owner
) -> None:
    first_list_id, second_list_id = list_ids
    addresses = [f"{random_hash_id()}@example.com" for _ in range(4)]
    sign_up_replies = [
        acting.ask(list_id, address) for list_id in list_ids for address in addresses
    ]
    assert set(sign_up_replies) == {(200, 1)}
    people = find_people(acting, first_list_id)
    transfers: list[Action] = [
        partial(acting.transfer, *direction, each.user_id or 0, owner.key)
        for each in people
        for direction in [(first_list_id, second_list_id), (second_list_id, first_list_id)]
    ]
    replies = run_at_once(transfers * sized(10, 500))
    assert set(replies) <= {(200, 1), (200, 0), (503, "list.busy")}
    require_consistent(acting, list_ids, *people)
    # Each person is on exactly one of the lists.
    assert true_count(acting, first_list_id) + true_count(acting, second_list_id) == len(people)


@pytest.mark.tier("faults")
def test_concurrent_actions_store_nothing_about_a_person_during_their_erasure(
    acting: ListActions, owner: Owner, list_ids: list[int]
) -> None:
    for _ in range(ROUND_COUNT):
        reader = acting.new_person(with_login=True)
        assert reader.user_id is not None
        acting.ask(list_ids[0], reader.address)
        run_at_once(build_actions_during_erasure(acting, list_ids, reader, owner))
        rows = acting.stack.query(
            "SELECT status, email_enabled, name, email FROM subscriptions WHERE user_id = %s",
            reader.user_id,
        )
        assert set(rows) == {("removed", False, None, None)}
        user_ids = acting.stack.query("SELECT id FROM users WHERE email = %s", reader.address)
        assert (reader.user_id,) not in user_ids
        for list_id in list_ids:
            assert shown_count(acting, list_id, owner) == true_count(acting, list_id)


def build_actions_during_erasure(
    acting: ListActions, list_ids: list[int], reader: Person, owner: Owner
) -> list[Action]:
    first_list_id, second_list_id = list_ids
    user_id = reader.user_id or 0

    def erase() -> Reply:
        acting.erase(reader.address)
        return 200, 1

    def rename() -> Reply:
        path = f"/lists/{first_list_id}/members/{user_id}"
        return acting.reply("PATCH", path, key=owner.key, json={"name": "Ada Reader"})

    sign_ups = [partial(acting.ask, list_id, reader.address) for list_id in list_ids]
    return [
        *sign_ups,
        erase,
        rename,
        *sign_ups,
        lambda: acting.reply(
            "POST", f"/subscriptions/{second_list_id}/no-challenge", key=reader.key
        ),
        lambda: acting.transfer(first_list_id, second_list_id, user_id, owner.key),
        lambda: acting.leave(first_list_id, user_id=user_id),
        rename,
    ]


def test_member_action_waits_for_a_bulk_action_on_its_list_without_deadlock(
    acting: ListActions, list_ids: list[int], owner: Owner
) -> None:
    """The sign-up and the bulk action both lock the list before they create the same person."""
    address = f"{random_hash_id()}@example.com"
    query = "SELECT 1 FROM pg_locks WHERE NOT granted AND locktype = 'advisory'"
    with ThreadPoolExecutor(1) as threads:
        with acting.resources.unit_of_work() as uow:
            locks.lock_list(uow, list_ids[0])
            sign_up = threads.submit(acting.ask, list_ids[0], address)
            eventually(lambda: acting.stack.query(query), what="the wait for the list")
            person = accounts.find_or_create_person(uow, address)
        assert sign_up.result(10) == (200, 1)
    require_consistent(acting, list_ids, Person(address, person.id))
    assert shown_count(acting, list_ids[0], owner) == 1
