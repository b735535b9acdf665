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
from tests.support.feed.following import read
from tests.support.imports.importing import Importing, new_addresses

READER = Actor(ActorKind.USER, Via.LOGIN)
MEMBERS = 20


@pytest.fixture
def owner(quiet: Stack) -> Owner:
    return quiet.new_owner()


@pytest.fixture
def members(quiet: Stack, owner: Owner) -> list[int]:
    """People who came onto a list of the owner's, one after the other."""
    list_id, people = Importing(quiet).new_list(owner), []
    for address in new_addresses(MEMBERS):
        with quiet.resources.unit_of_work() as uow:
            person = accounts.create_user(uow, email=address, name="Ada")
            sign_up.subscribe_person(uow, lists.get_list(uow, list_id), person, READER)
            people.append(person.id)
    return people


def _events(stack: Stack, owner: Owner) -> list[FeedEvent]:
    kinds = [FeedEventType.SUBSCRIPTION_CREATED]

    def there() -> list[FeedEvent]:
        found = read(stack.resources, owner.user_id, types=kinds)
        return found if len(found) == MEMBERS else []

    found = eventually(there, what="all events")
    assert isinstance(found, list)
    return found


def test_many_events_are_shown_by_one_query(quiet: Stack, owner: Owner, members: list[int]) -> None:
    events, statements = _events(quiet, owner), list[str]()
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
    quiet: Stack, owner: Owner, members: list[int]
) -> None:
    """The list's own record is blanked later, by a job."""
    quiet.query("UPDATE users SET erased_at = now() WHERE id = %s", members[0])
    with quiet.resources.unit_of_work() as uow:
        first, second, *_ = reading.show(uow.session, _events(quiet, owner))
    assert (first["data"]["email"], first["data"]["name"]) == (None, None)
    assert second["data"]["email"]
