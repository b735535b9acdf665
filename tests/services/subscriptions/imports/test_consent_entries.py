from concurrent.futures import ThreadPoolExecutor

import pytest

from core.errors import DomainError
from core.ids import random_hash_id
from models import MailingList, User
from services.accounts import accounts
from services.subscriptions import lists, sign_up
from services.subscriptions.members.changes import Actor, ActorKind, Via
from tests.importing import Importing

OWNERS = 6


def join(importing: Importing, list_id: int, ip: str | None = None) -> int:
    """A new person subscribes themselves; their id."""
    actor = Actor(ActorKind.USER, Via.LOGIN, ip=ip)
    with importing.resources.unit_of_work() as uow:
        person = accounts.create_user(uow, email=f"{random_hash_id()}@example.com", name="Ada")
        of = lists.get(uow, list_id)
        sign_up.join(uow, of, person, actor)
        return person.id


@pytest.mark.parametrize(
    ("told", "kept"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:DB8::7", "2001:db8::7"),
        ("unix:", None),
        ("x" * 10_000, None),
        ("fe80::1%eth0", None),
    ],
)
def test_only_an_address_is_kept_as_one(
    importing: Importing, list_id: int, told: str, kept: str | None
) -> None:
    user_id = join(importing, list_id, ip=told)
    entries = "SELECT ip FROM consent_entries WHERE user_id = %s"
    assert importing.stack.query(entries, user_id) == [(kept,)]


def test_wordings_that_are_set_at_once_get_a_version_each(
    importing: Importing, list_id: int
) -> None:
    def set_wording(number: int) -> None:
        wording = {"consent_wording": f"Wording {number // 2}"}
        while True:
            try:
                with importing.resources.unit_of_work() as uow:
                    lists.change(uow, lists.get(uow, list_id), wording, ())
            except DomainError as error:
                # As a caller does who is told to try again.
                if error.code != "list.busy":
                    raise
            else:
                return

    with ThreadPoolExecutor(OWNERS) as pool:
        list(pool.map(set_wording, range(2 * OWNERS)))
    versions = "SELECT array_agg(version ORDER BY version), count(DISTINCT wording)"
    [(given, different)] = importing.stack.query(
        f"{versions} FROM consent_wordings WHERE list_id = %s", list_id
    )
    assert (given, different) == (list(range(1, OWNERS + 1)), OWNERS)


def test_an_entry_has_the_wording_that_held_when_it_was_written(
    importing: Importing, list_id: int
) -> None:
    """Whatever the same transaction had read of the list before."""
    with importing.resources.unit_of_work() as uow:
        of = uow.session.get_one(MailingList, list_id)
        person = accounts.create_user(uow, email=f"{random_hash_id()}@example.com", name="Ada")
        user_id = person.id
        uow.session.flush()
        with importing.resources.unit_of_work() as other:
            lists.change(other, lists.get(other, list_id), {"consent_wording": "New"}, ())
        person = uow.session.get_one(User, user_id)
        actor = Actor(ActorKind.USER, Via.LOGIN)
        sign_up.join(uow, of, person, actor)
    entries = "SELECT wording_version FROM consent_entries WHERE user_id = %s"
    assert importing.stack.query(entries, user_id) == [(1,)]
