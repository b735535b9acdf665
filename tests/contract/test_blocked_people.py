"""Tests that nobody can add a denied or opted-out person to a mailing list.

Only the person who opted out can lift an opt-out.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import httpx2
import pytest

from api.pages.preferences.actions import LIFT_OPT_OUT
from core.ids import AccountId, PersonId
from core.scopes import Scope
from devstack.harness.opening import DENIED_BY_OPERATOR
from devstack.harness.stack import Owner, Stack
from models import OptOutKind
from services.accounts import accounts
from services.accounts.mailed_tokens import Purpose
from services.subscriptions import deny_lists, lists
from services.subscriptions.members import members, unsubscribe
from services.subscriptions.members.changes import Actor, ActorKind, Via
from tests.support.http.replies import data
from tests.support.imports.bulk import add, await_job, build_address_file, upload
from tests.support.lists.people_on_lists import Subscriber
from tests.support.lists.subscribers import new_list
from tests.support.people.consoles import OwnerAtConsole
from tests.support.people.oauth import log_in, register
from tests.support.people.visiting import new_address, read_hidden_fields

BLOCK_REASONS = ("nothing", "owner", "operator", "opt-out")


@dataclass
class BlockedList:
    """Two mailing lists of an owner, with one person for each reason to block people.

    Attributes:
        people: maps each reason in ``BLOCK_REASONS`` to a person who is blocked for this reason.
            The key ``nothing`` maps to a person who isn't blocked.
        bulk_id: the id of the bulk action in which the people were removed, if there was one.
    """

    stack: Stack
    console: OwnerAtConsole
    list_id: int
    other_list_id: int
    people: dict[str, Subscriber] = field(default_factory=dict)
    bulk_id: int | None = None

    @property
    def api(self) -> httpx2.Client:
        return self.console.api

    @property
    def addresses(self) -> list[str]:
        return [each.email for each in self.people.values()]

    def active(self) -> set[str]:
        """Return the keys of ``people`` whose person is an active member of the list."""
        rows = self.stack.query(
            "SELECT user_id FROM subscriptions WHERE list_id = %s AND status = 'active'",
            self.list_id,
        )
        active = {user_id for (user_id,) in rows}
        return {reason for reason, each in self.people.items() if each.user_id in active}


@pytest.fixture(scope="module")
def blocked_list(stack: Stack, shared_console: OwnerAtConsole) -> BlockedList:
    """Two new mailing lists of the owner in the fixture `shared_console`."""
    return BlockedList(
        stack,
        shared_console,
        new_list(shared_console.api)["id"],
        new_list(shared_console.api)["id"],
    )


def create_people(blocked_list: BlockedList) -> None:
    blocked_list.people.clear()
    with blocked_list.stack.resources.unit_of_work() as uow:
        for reason in BLOCK_REASONS:
            domain = DENIED_BY_OPERATOR if reason == "operator" else "example.com"
            email = f"{new_address().partition('@')[0]}@{domain}"
            user_id = accounts.create_user(uow, email=email, name="A reader").id
            blocked_list.people[reason] = Subscriber(
                blocked_list.stack, blocked_list.list_id, user_id, email
            )


def block_people(blocked_list: BlockedList) -> None:
    owner_id = blocked_list.console.owner.user_id
    with blocked_list.stack.resources.unit_of_work() as uow:
        deny_lists.replace_entries(uow, AccountId(owner_id), [blocked_list.people["owner"].email])
        mailing_list = lists.get_list(uow, blocked_list.list_id)
        person = accounts.get_user(uow, PersonId(blocked_list.people["opt-out"].user_id))
    unsubscribe.opt_out(
        blocked_list.stack.resources, mailing_list, person, OptOutKind.LIST, PERSON_ACTOR
    )


# Maps each button that cancels an opt-out to a boolean: whether the button also reactivates the
# subscription of a person who unsubscribed.
ACTIVATES_BY_BUTTON = {"undo": True, "resume_mail": False}
PERSON_ACTOR = Actor(ActorKind.USER, Via.LOGIN)
OWNER_ACTOR = Actor(ActorKind.OWNER, Via.LOGIN)


# -- membership of the people before they are blocked ---------------------------------------------


def insert_members(blocked_list: BlockedList, list_id: int) -> None:
    """Insert subscriptions by SQL, because the operator's deny list would refuse some people."""
    for each in blocked_list.people.values():
        blocked_list.stack.query(
            "INSERT INTO subscriptions (list_id, user_id, status, email, source)"
            " VALUES (%s, %s, 'active', %s, 'login')",
            list_id,
            each.user_id,
            each.email,
        )


def keep_as_strangers(_: BlockedList) -> None:
    pass


def add_to_other_list(blocked_list: BlockedList) -> None:
    insert_members(blocked_list, blocked_list.other_list_id)


def make_pending(blocked_list: BlockedList) -> None:
    insert_members(blocked_list, blocked_list.list_id)
    blocked_list.stack.query(
        "UPDATE subscriptions SET status = 'pending' WHERE list_id = %s AND status = 'active'",
        blocked_list.list_id,
    )


def unsubscribe_people(blocked_list: BlockedList) -> None:
    insert_members(blocked_list, blocked_list.list_id)
    with blocked_list.stack.resources.unit_of_work() as uow:
        mailing_list = lists.get_list(uow, blocked_list.list_id)
        for each in blocked_list.people.values():
            person = accounts.get_user(uow, PersonId(each.user_id))
            unsubscribe.unsubscribe_member(uow, mailing_list, person, PERSON_ACTOR)


def remove_people(blocked_list: BlockedList) -> None:
    insert_members(blocked_list, blocked_list.list_id)
    with blocked_list.stack.resources.unit_of_work() as uow:
        mailing_list = lists.get_list(uow, blocked_list.list_id)
        for each in blocked_list.people.values():
            members.remove_member(uow, mailing_list, PersonId(each.user_id), OWNER_ACTOR)


def remove_people_in_bulk(blocked_list: BlockedList) -> None:
    insert_members(blocked_list, blocked_list.list_id)
    body = {"action": "remove", "filter": {"field": "status", "is": "active"}}
    job = data(blocked_list.api.post(f"/lists/{blocked_list.list_id}/members/bulk", json=body), 202)
    blocked_list.bulk_id = await_job(blocked_list.api, job["id"])["result"]["bulk_id"]


# -- the ways to join a list ----------------------------------------------------------------------


def sign_up_by_json(blocked_list: BlockedList) -> None:
    with blocked_list.stack.client() as stranger:
        for email in blocked_list.addresses:
            data(stranger.post(f"/subscriptions/{blocked_list.list_id}", json={"email": email}))


def sign_up_by_form(blocked_list: BlockedList) -> None:
    with blocked_list.stack.client() as stranger:
        for email in blocked_list.addresses:
            reply = stranger.post(f"/subscriptions/{blocked_list.list_id}", data={"email": email})
            assert reply.status_code in {200, 303}, reply.text


def confirm_by_link(blocked_list: BlockedList) -> None:
    with blocked_list.stack.client() as stranger:
        for each in blocked_list.people.values():
            stranger.post(each.confirm_url())


def click_on_unsubscribe_page(blocked_list: BlockedList, action: str) -> None:
    with blocked_list.stack.client() as stranger:
        for each in blocked_list.people.values():
            stranger.post(each.unsubscribe_url, data={"action": action})


def click_in_preferences(blocked_list: BlockedList, action: str) -> None:
    for each in blocked_list.people.values():
        with blocked_list.stack.client() as browser:
            path = f"/preferences/open?token={each.mailed_token(Purpose.OPEN_PREFERENCES)}"
            assert browser.post(path, data=read_hidden_fields(browser.get(path))).status_code == 303
            form = {**read_hidden_fields(browser.get("/preferences")), "list": str(each.list_id)}
            browser.post("/preferences", data={**form, "action": action})


def switch_mail_on(blocked_list: BlockedList) -> None:
    with blocked_list.stack.client() as stranger:
        for each in blocked_list.people.values():
            path = f"/subscriptions/{blocked_list.list_id}/email"
            params = {"trace_id": each.trace_id}
            assert data(stranger.put(path, params=params, json={"enabled": True})) == 1


def join_by_key(blocked_list: BlockedList) -> None:
    for each in blocked_list.people.values():
        with blocked_list.stack.client(blocked_list.stack.create_key(each.user_id)) as reader:
            reader.post(f"/subscriptions/{blocked_list.list_id}/no-challenge")


def join_by_session(blocked_list: BlockedList) -> None:
    for each in blocked_list.people.values():
        person = log_in(blocked_list.stack, Owner(each.user_id, each.email, ""))
        origin = {"Origin": blocked_list.stack.api_url}
        with person.browser as browser:
            browser.post(f"/subscriptions/{blocked_list.list_id}/no-challenge", headers=origin)


def join_by_program(blocked_list: BlockedList) -> None:
    program = register(blocked_list.stack, scopes=(Scope.SUBSCRIPTION_FULL,))
    for each in blocked_list.people.values():
        person = log_in(blocked_list.stack, Owner(each.user_id, each.email, ""))
        with person.browser:
            token = program.tokens(person, Scope.SUBSCRIPTION_FULL)["access_token"]
        with blocked_list.stack.client(token) as client:
            client.post(f"/subscriptions/{blocked_list.list_id}/no-challenge")


def add_by_put(blocked_list: BlockedList) -> None:
    for email in blocked_list.addresses:
        blocked_list.api.put(f"/lists/{blocked_list.list_id}/members/{email}", json={})


def change_name(blocked_list: BlockedList) -> None:
    for each in blocked_list.people.values():
        path = f"/lists/{blocked_list.list_id}/members/{each.user_id}"
        data(blocked_list.api.patch(path, json={"name": "Another"}))


def add_by_console(blocked_list: BlockedList) -> None:
    for email in blocked_list.addresses:
        blocked_list.console.send(f"/console/lists/{blocked_list.list_id}/members/new", email=email)


def add_in_bulk(blocked_list: BlockedList) -> None:
    data(add(blocked_list.api, blocked_list.list_id, *blocked_list.addresses, prefer="wait=30"))


def import_file(blocked_list: BlockedList) -> None:
    file = build_address_file(*blocked_list.addresses)
    data(upload(blocked_list.api, blocked_list.list_id, file, on_existing="update"))


def transfer_by_api(blocked_list: BlockedList) -> None:
    for each in blocked_list.people.values():
        path = f"/subscriptions/{blocked_list.other_list_id}/members/{each.user_id}/transfer"
        blocked_list.api.post(path, params={"dst_list_id": blocked_list.list_id})


def move_by_console(blocked_list: BlockedList) -> None:
    token = blocked_list.console.visitor.csrf_token()
    for each in blocked_list.people.values():
        path = f"/console/lists/{blocked_list.other_list_id}/members/{each.user_id}/move"
        form = {"csrf_token": token, "list": str(blocked_list.list_id)}
        blocked_list.console.visitor.client.post(path, data=form)


def undo_removal_in_bulk(blocked_list: BlockedList) -> None:
    data(blocked_list.api.delete(f"/bulk/{blocked_list.bulk_id}"))


@dataclass(frozen=True)
class JoinMethod:
    """A way to join a mailing list.

    Attributes:
        join: lets all people try to join the list.
        prepare: creates the membership that the people have before they are blocked.
        is_own_action: whether the people themselves join, which lifts an opt-out.
        activates: whether joining makes a person who isn't blocked an active member.
    """

    join: Callable[[BlockedList], None]
    prepare: Callable[[BlockedList], None]
    is_own_action: bool = False
    activates: bool = True


JOIN_METHODS = {
    "sign-up by JSON": JoinMethod(sign_up_by_json, keep_as_strangers),
    "sign-up by form": JoinMethod(sign_up_by_form, keep_as_strangers),
    "confirmation": JoinMethod(confirm_by_link, make_pending, is_own_action=True),
    **{
        f"{action} on the unsubscribe page": JoinMethod(
            partial(click_on_unsubscribe_page, action=action),
            unsubscribe_people,
            is_own_action=True,
            activates=activates,
        )
        for action, activates in ACTIVATES_BY_BUTTON.items()
    },
    **{
        f"{action} in the preferences": JoinMethod(
            partial(click_in_preferences, action=action),
            unsubscribe_people,
            is_own_action=True,
            activates=activates,
        )
        for action, activates in ACTIVATES_BY_BUTTON.items()
    },
    "mail switched on by a trace id": JoinMethod(
        switch_mail_on, unsubscribe_people, is_own_action=True, activates=False
    ),
    "login by key": JoinMethod(join_by_key, unsubscribe_people, is_own_action=True),
    "login by session": JoinMethod(join_by_session, keep_as_strangers, is_own_action=True),
    "login by program": JoinMethod(join_by_program, remove_people, is_own_action=True),
    "PUT of a stranger": JoinMethod(add_by_put, keep_as_strangers),
    "PUT of a removed member": JoinMethod(add_by_put, remove_people),
    "PATCH": JoinMethod(change_name, unsubscribe_people, activates=False),
    "console": JoinMethod(add_by_console, remove_people),
    "bulk add": JoinMethod(add_in_bulk, remove_people),
    "import of strangers": JoinMethod(import_file, keep_as_strangers),
    "import of removed members": JoinMethod(import_file, remove_people),
    "transfer": JoinMethod(transfer_by_api, add_to_other_list),
    "move by console": JoinMethod(move_by_console, add_to_other_list),
    "undo of a bulk removal": JoinMethod(undo_removal_in_bulk, remove_people_in_bulk),
}


@pytest.mark.parametrize("name", JOIN_METHODS)
def test_person_on_a_deny_list_never_joins_and_opted_out_person_only_by_own_action(
    blocked_list: BlockedList, name: str
) -> None:
    method = JOIN_METHODS[name]
    create_people(blocked_list)
    method.prepare(blocked_list)
    block_people(blocked_list)
    method.join(blocked_list)
    expected = {"nothing"} if method.activates else set()
    ignored_reasons = {"opt-out"} if method.is_own_action else set()
    assert blocked_list.active() - ignored_reasons == expected


def test_opt_out_tests_cover_every_button_that_lifts_an_opt_out() -> None:
    assert set(ACTIVATES_BY_BUTTON) == set(LIFT_OPT_OUT)
