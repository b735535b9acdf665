"""Tests that one query reads the data of many feed events, and omits names of erased people."""

import pytest
from sqlalchemy import event

from devstack.harness.polling import eventually
from devstack.harness.stack import Owner, Stack
from models import FeedEvent
from services.accounts import accounts
from services.feed import reading
from services.feed.catalogue import FeedEventType
from services.subscriptions import lists, sign_up
from services.subscriptions.members.changes import Actor, ActorKind, Via
from tests.support.feed.following import read_events
from tests.support.imports.importing import ImportRunner, new_addresses

READER = Actor(ActorKind.USER, Via.LOGIN)
MEMBER_COUNT = 20


@pytest.fixture
def feed_owner(stack_without_processes: Stack) -> Owner:
    return stack_without_processes.create_owner()


@pytest.fixture
def member_ids(stack_without_processes: Stack, feed_owner: Owner) -> list[int]:
    """The ids of 20 members of a list of ``feed_owner``, sorted by the time of joining."""
    list_id = ImportRunner(stack_without_processes).new_list(feed_owner)
    user_ids: list[int] = []
    for address in new_addresses(MEMBER_COUNT):
        with stack_without_processes.resources.unit_of_work() as uow:
            person = accounts.create_user(uow, email=address, name="Ada")
            sign_up.subscribe_person(uow, lists.get_list(uow, list_id), person, READER)
            user_ids.append(person.id)
    return user_ids


def _read_all_events(stack: Stack, feed_owner: Owner) -> list[FeedEvent]:
    kinds = [FeedEventType.SUBSCRIPTION_CREATED]

    def read_if_complete() -> list[FeedEvent]:
        events = read_events(stack.resources, feed_owner.user_id, types=kinds)
        return events if len(events) == MEMBER_COUNT else []

    result = eventually(read_if_complete, what="all events")
    assert isinstance(result, list)
    return result


def test_feed_events_of_one_page_are_rendered_with_one_query(
    stack_without_processes: Stack, feed_owner: Owner, member_ids: list[int]
) -> None:
    events = _read_all_events(stack_without_processes, feed_owner)
    statements = list[str]()
    engine = stack_without_processes.resources.database.engine

    def record_statement(_: object, __: object, statement: str, *___: object) -> None:
        statements.append(statement)

    event.listen(engine, "before_cursor_execute", record_statement)
    try:
        with stack_without_processes.resources.unit_of_work() as uow:
            rendered_events = reading.render_events(uow.session, events)
    finally:
        event.remove(engine, "before_cursor_execute", record_statement)
    assert [each["data"]["user_id"] for each in rendered_events] == member_ids
    assert {each["data"]["name"] for each in rendered_events} == {"Ada"}
    assert len(statements) == 1


def test_feed_shows_no_name_or_address_as_soon_as_a_person_is_marked_erased(
    stack_without_processes: Stack, feed_owner: Owner, member_ids: list[int]
) -> None:
    """Pressroom marks the person as erased before a job deletes the person's name and address."""
    stack_without_processes.query("UPDATE users SET erased_at = now() WHERE id = %s", member_ids[0])
    with stack_without_processes.resources.unit_of_work() as uow:
        first, second, *_ = reading.render_events(
            uow.session, _read_all_events(stack_without_processes, feed_owner)
        )
    assert (first["data"]["email"], first["data"]["name"]) == (None, None)
    assert second["data"]["email"]
