import random
from functools import partial

import pytest

from core.ids import random_hash_id
from devstack.harness.stack import Owner
from services.subscriptions import count_merging, figures_verification
from tests.support.lists.acting import ListActions, Person
from tests.support.lists.model import Reply
from tests.support.lists.racing import (
    Action,
    find_people,
    require_consistent,
    run_at_once,
    shown_count,
    true_count,
)
from tests.support.lists.tallying import read_daily_totals
from tests.support.sizes import sized
from tests.support.stack.load import repeating

ACTION_COUNT = sized(400, 20_000, few=100)


@pytest.mark.tier("fast", "properties")
def test_subscriber_counts_stay_correct_during_concurrent_changes_and_folding(
    acting: ListActions, list_ids: list[int], owner: Owner
) -> None:
    with repeating(*[partial(fold_deltas, acting)] * 2, pause=0.01):
        replies = run_at_once(build_actions(acting, list_ids[0], owner))
    # No action waits long for the list's lock.
    assert set(replies) <= {(200, 1), (200, 0), (503, "list.busy")}
    assert true_count(acting, list_ids[0]) > 0
    assert shown_count(acting, list_ids[0], owner) == true_count(acting, list_ids[0])
    require_consistent(acting, list_ids, *find_people(acting, list_ids[0]))
    require_figures_of_history(acting, list_ids[0])


def require_figures_of_history(acting: ListActions, list_id: int) -> None:
    """Require that the list's daily figures of joined and left members match the list's events.

    No import runs in this test, so Pressroom records an event for every change of a subscription.
    """
    faults = figures_verification.verify_figures(acting.resources)
    assert [each for each in faults if each.list_id == list_id] == []
    [(joined_count, left_count)] = acting.stack.query(
        "SELECT count(*) FILTER (WHERE status_after = 'active'"
        " AND status_before IS DISTINCT FROM 'active'),"
        " count(*) FILTER (WHERE status_before = 'active' AND status_after <> 'active')"
        " FROM subscription_events WHERE list_id = %s",
        list_id,
    )
    [figures] = read_daily_totals(acting.resources, list_id).values()
    assert figures == (joined_count, left_count)


def build_actions(acting: ListActions, list_id: int, owner: Owner) -> list[Action]:
    """Return actions on a list, such as sign-ups, in random order.

    About half of the actions sign up new people. With the other actions, the same few people join,
    leave or are removed again and again. Several actions for one person may run at the same time.
    """
    known_people = [acting.new_person(with_login=True) for _ in range(ACTION_COUNT // 20)]

    def sign_up() -> Reply:
        return acting.ask(list_id, f"{random_hash_id()}@example.com")

    def build_actions_of(person: Person) -> list[Action]:
        user_id = person.user_id or 0
        path = f"/subscriptions/{list_id}/no-challenge"

        def remove() -> Reply:
            status, data = acting.remove(list_id, user_id, owner.key)
            # A person who hasn't joined yet can't be removed.
            return (200, 0) if data == "member.not_found" else (status, data)

        return [
            lambda: acting.reply("POST", path, key=person.key),
            lambda: acting.leave(list_id, key=person.key),
            lambda: acting.reply("POST", path, key=person.key),
            remove,
            lambda: acting.leave(list_id, user_id=user_id),
            lambda: acting.ask(list_id, person.address),
            lambda: acting.reply("POST", path, key=person.key),
            remove,
            lambda: acting.reply("POST", path, key=person.key),
        ]

    actions = [action for person in known_people for action in build_actions_of(person)]
    actions += [sign_up] * (ACTION_COUNT - len(actions))
    random.Random(2).shuffle(actions)
    return actions


def fold_deltas(acting: ListActions) -> None:
    with acting.resources.unit_of_work() as uow:
        for merge in (count_merging.SUBSCRIBERS, count_merging.MEMBER_DAYS):
            count_merging.merge_batch(uow, merge, max_changes=7)
