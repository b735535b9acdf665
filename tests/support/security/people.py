"""Creates people with different relations to a list, and requests about these people."""

import secrets
from collections.abc import Callable
from typing import Any

from devstack.harness.stack import Owner, Stack
from models import MailingList, User
from services.accounts import accounts
from services.privacy import erasure
from services.subscriptions import lists, sign_up
from services.subscriptions.members import members, unsubscribe
from services.subscriptions.members.changes import Actor, ActorKind, Via
from storage.unit_of_work import UnitOfWork
from tests.support.lists.subscribers import trace_for

STRANGER = Actor(ActorKind.STRANGER, Via.CHALLENGE)


class Person:
    """Acts on a list as the person with this address."""

    def __init__(self, uow: UnitOfWork, list_id: int, email: str) -> None:
        self.uow = uow
        self.email = email
        self.list: MailingList = lists.get_list(uow, list_id)

    def subscribes(self) -> User:
        actor = Actor(ActorKind.USER, Via.LOGIN)
        person = accounts.find_or_create_person(self.uow, self.email)
        sign_up.subscribe_person(self.uow, self.list, person, actor)
        return person

    def asks(self) -> None:
        confirm_required = self.list.confirm_required
        self.list.confirm_required = True
        sign_up.request_subscription(self.uow, self.list, self.email, STRANGER)
        self.list.confirm_required = confirm_required

    def opts_out(self) -> None:
        actor = Actor(ActorKind.USER, Via.TRACE)
        unsubscribe.unsubscribe_member(self.uow, self.list, self.subscribes(), actor)

    def is_removed(self) -> None:
        actor = Actor(ActorKind.OWNER, Via.LOGIN)
        members.remove_member(self.uow, self.list, self.subscribes().id, actor)

    def owns_lists(self) -> None:
        owner = accounts.find_or_create_person(self.uow, self.email)
        slug = f"own-{secrets.token_hex(6)}"
        lists.create_list(self.uow, owner_id=owner.id, title="Own", slug=slug)

    def is_erased(self) -> None:
        self.opts_out()
        self.uow.session.flush()
        erasure.mark_erased(self.uow, self.email)

    def is_known_elsewhere(self) -> None:
        accounts.create_user(self.uow, email=self.email, name="Known", password="secret-word")

    def is_new(self) -> None: ...


# Maps each relation between a person and a list, such as "pending", to a function that creates it.
KINDS: dict[str, Callable[[Person], object]] = {
    "active": Person.subscribes,
    "pending": Person.asks,
    "opted out": Person.opts_out,
    "removed": Person.is_removed,
    "owner of lists": Person.owns_lists,
    "erased": Person.is_erased,
    "known elsewhere": Person.is_known_elsewhere,
    "new": Person.is_new,
}


def new_list(stack: Stack, owner: Owner, **fields: Any) -> int:
    with stack.resources.unit_of_work() as uow:
        slug = f"quiet-{secrets.token_hex(6)}"
        mailing_list = lists.create_list(
            uow,
            owner_id=owner.user_id,
            title="Quiet",
            slug=slug,
            fields={"confirm_required": False, **fields},
            providers=["turnstile"],
        )
        return mailing_list.id


def address_of(stack: Stack, list_id: int, kind: str) -> str:
    return addresses_of(stack, list_id, kind, count=1)[0]


def addresses_of(stack: Stack, list_id: int, kind: str, *, count: int) -> list[str]:
    emails = [f"{secrets.token_hex(8)}@example.com" for _ in range(count)]
    with stack.resources.unit_of_work() as uow:
        for email in emails:
            KINDS[kind](Person(uow, list_id, email))
    return emails


# The method, the path and the body of a request.
Request = tuple[str, str, dict[str, Any] | None]


def build_traced_requests(list_id: int) -> list[Request]:
    """Return the requests that identify a person by a trace id."""
    return [
        ("DELETE", f"/subscriptions/{list_id}", None),
        ("PUT", f"/subscriptions/{list_id}/email", {"enabled": True}),
        ("POST", f"/subscriptions/{list_id}/delete", None),
        ("GET", "/subscriptions/opponent", None),
    ]


def forge_trace_id(stack: Stack, list_id: int, user_id: int) -> str:
    """Return a trace id that identifies this person, but has a wrong signature."""
    signed, key_id, mac = trace_for(stack, list_id, user_id).split(".")
    return f"{signed}.{key_id}.{'B' if mac[0] == 'A' else 'A'}{mac[1:]}"


def user_ids(stack: Stack, list_id: int) -> dict[str, int]:
    """For each relation in ``KINDS``, create a person who has this relation to the list.

    Map each relation to the user id of the person. Relations such as ``new`` are missing, because
    the person has no user id. The id with the key ``nobody`` belongs to no person.
    """
    ids = {"nobody": secrets.randbelow(2**53)}
    for kind in KINDS:
        email = address_of(stack, list_id, kind)
        for (user_id,) in stack.query("SELECT id FROM users WHERE email = %s", email):
            assert isinstance(user_id, int)
            ids[kind] = user_id
    return ids
