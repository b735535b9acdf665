import pytest
from sqlalchemy import event

from core.ids import random_hash_id, random_id
from models import FeedEvent, Subscription, SubscriptionStatus
from services.accounts import accounts
from services.feed import reading
from services.feed.catalogue import FeedEventType
from services.subscriptions.members import changes
from services.subscriptions.members.changes import Actor, ActorKind, Via
from tests.services.feed.following import read
from tests.stack import Stack, eventually

STRANGER = Actor(ActorKind.STRANGER, Via.CHALLENGE)
MEMBERS = 20


@pytest.fixture
def owner_id(quiet: Stack) -> int:
    return quiet.new_owner().user_id


@pytest.fixture
def members(quiet: Stack, owner_id: int) -> list[int]:
    """People who came onto a list of the owner's, one after the other."""
    list_id = random_id()
    query = "INSERT INTO lists (id, user_id, slug, title) VALUES (%s, %s, %s, 'A list')"
    quiet.query(query, list_id, owner_id, f"list-{list_id}")
    people = []
    for _ in range(MEMBERS):
        with quiet.resources.unit_of_work() as uow:
            address = f"{random_hash_id()}@example.com"
            person = accounts.create_user(uow, email=address, name="Ada")
            record = Subscription(
                list_id=list_id,
                user_id=person.id,
                email=address,
                name="Ada",
                source="challenge",
                status=SubscriptionStatus.ACTIVE,
            )
            changes.add(uow, record, "requested", STRANGER)
            people.append(person.id)
    return people


def _events(stack: Stack, owner_id: int) -> list[FeedEvent]:
    kinds = [FeedEventType.SUBSCRIPTION_CREATED]

    def there() -> list[FeedEvent]:
        found = read(stack.resources, owner_id, types=kinds)
        return found if len(found) == MEMBERS else []

    found = eventually(there, what="all events")
    assert isinstance(found, list)
    return found


def test_many_events_are_shown_by_one_query(
    quiet: Stack, owner_id: int, members: list[int]
) -> None:
    events, statements = _events(quiet, owner_id), list[str]()
    engine = quiet.resources.database.engine

    def note(_: object, __: object, statement: str, *___: object) -> None:
        statements.append(statement)

    event.listen(engine, "before_cursor_execute", note)
    try:
        with quiet.resources.unit_of_work() as uow:
            shown = reading.show(uow.session, events)
    finally:
        event.remove(engine, "before_cursor_execute", note)
    assert [each["data"]["user_id"] for each in shown] == members
    assert {each["data"]["name"] for each in shown} == {"Ada"}
    assert len(statements) == 1


def test_a_person_has_no_name_from_the_moment_of_their_erasures_mark(
    quiet: Stack, owner_id: int, members: list[int]
) -> None:
    """The list's own record is blanked later, by a job."""
    quiet.query("UPDATE users SET erased_at = now() WHERE id = %s", members[0])
    with quiet.resources.unit_of_work() as uow:
        first, second, *_ = reading.show(uow.session, _events(quiet, owner_id))
    assert (first["data"]["email"], first["data"]["name"]) == (None, None)
    assert second["data"]["email"]
