"""Tests that nobody can add a denied or opted-out person to a mailing list.

Only the person who opted out can lift an opt-out.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import httpx2
import pytest

from api.pages.preferences.actions import LIFT_OPT_OUT
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
from tests.support.imports.bulk import add, finished, of_addresses, upload
from tests.support.lists.people_on_lists import Subscriber
from tests.support.lists.subscribers import new_list
from tests.support.people.consoles import OwnerAtConsole
from tests.support.people.oauth import log_in, register
from tests.support.people.visiting import hidden, new_address

BLOCKS = ("nothing", "owner", "operator", "opt-out")


@dataclass
class BlockedList:
    """Two mailing lists of an owner, with one person for each reason to keep people off a list.

    Attributes:
        people: maps each reason, such as the owner's deny list, to a person whom it keeps off the
            list. The person under ``nothing`` is allowed to join.
        notes: values that the setup of a test saves for later steps, such as the id of a bulk
            action.
    """

    stack: Stack
    console: OwnerAtConsole
    list_id: int
    other_id: int
    people: dict[str, Subscriber] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)

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
        return {block for block, each in self.people.items() if each.user_id in active}


@pytest.fixture(scope="module")
def blocked_list(stack: Stack, shared_console: OwnerAtConsole) -> BlockedList:
    """Two new mailing lists of the owner in the fixture `shared_console`."""
    return BlockedList(
        stack,
        shared_console,
        new_list(shared_console.api)["id"],
        new_list(shared_console.api)["id"],
    )


def meet_people(blocked_list: BlockedList) -> None:
    blocked_list.people.clear()
    with blocked_list.stack.resources.unit_of_work() as uow:
        for block in BLOCKS:
            domain = DENIED_BY_OPERATOR if block == "operator" else "example.com"
            email = f"{new_address().partition('@')[0]}@{domain}"
            user_id = accounts.create_user(uow, email=email, name="A reader").id
            blocked_list.people[block] = Subscriber(
                blocked_list.stack, blocked_list.list_id, user_id, email
            )


def block_people(blocked_list: BlockedList) -> None:
    owner_id = blocked_list.console.owner.user_id
    with blocked_list.stack.resources.unit_of_work() as uow:
        deny_lists.replace_entries(uow, owner_id, [blocked_list.people["owner"].email])
        mailing_list = lists.get_list(uow, blocked_list.list_id)
        person = accounts.get_user(uow, blocked_list.people["opt-out"].user_id)
    unsubscribe.opt_out(
        blocked_list.stack.resources, mailing_list, person, OptOutKind.LIST, OF_PERSON
    )


# The buttons with which a person returns to a list. The value is true if the button makes a person
# who unsubscribed an active member again.
RETURNING = {"undo": True, "resume_mail": False}
OF_PERSON = Actor(ActorKind.USER, Via.LOGIN)
OF_OWNER = Actor(ActorKind.OWNER, Via.LOGIN)


# -- membership of the people before they are denied or opted out -------------------------------


def put_on_list(blocked_list: BlockedList, list_id: int) -> None:
    """Insert subscriptions by SQL, because the operator's deny list would refuse some people."""
    for each in blocked_list.people.values():
        blocked_list.stack.query(
            "INSERT INTO subscriptions (list_id, user_id, status, email, source)"
            " VALUES (%s, %s, 'active', %s, 'login')",
            list_id,
            each.user_id,
            each.email,
        )


def be_strangers(_: BlockedList) -> None:
    pass


def be_members_elsewhere(blocked_list: BlockedList) -> None:
    put_on_list(blocked_list, blocked_list.other_id)


def wait(blocked_list: BlockedList) -> None:
    put_on_list(blocked_list, blocked_list.list_id)
    blocked_list.stack.query(
        "UPDATE subscriptions SET status = 'pending' WHERE list_id = %s AND status = 'active'",
        blocked_list.list_id,
    )


def leave(blocked_list: BlockedList) -> None:
    put_on_list(blocked_list, blocked_list.list_id)
    with blocked_list.stack.resources.unit_of_work() as uow:
        mailing_list = lists.get_list(uow, blocked_list.list_id)
        for each in blocked_list.people.values():
            person = accounts.get_user(uow, each.user_id)
            unsubscribe.unsubscribe_member(uow, mailing_list, person, OF_PERSON)


def be_removed(blocked_list: BlockedList) -> None:
    put_on_list(blocked_list, blocked_list.list_id)
    with blocked_list.stack.resources.unit_of_work() as uow:
        mailing_list = lists.get_list(uow, blocked_list.list_id)
        for each in blocked_list.people.values():
            members.remove_member(uow, mailing_list, each.user_id, OF_OWNER)


def be_removed_in_bulk(blocked_list: BlockedList) -> None:
    put_on_list(blocked_list, blocked_list.list_id)
    body = {"action": "remove", "filter": {"field": "status", "is": "active"}}
    job = data(blocked_list.api.post(f"/lists/{blocked_list.list_id}/members/bulk", json=body), 202)
    blocked_list.notes["bulk_id"] = finished(blocked_list.api, job["id"])["result"]["bulk_id"]


# -- the ways to join a list ----------------------------------------------------------------------


def sign_up_by_json(blocked_list: BlockedList) -> None:
    with blocked_list.stack.client() as stranger:
        for email in blocked_list.addresses:
            data(stranger.post(f"/subscriptions/{blocked_list.list_id}", json={"email": email}))


def sign_up_by_form(blocked_list: BlockedList) -> None:
    with blocked_list.stack.client() as stranger:
        for email in blocked_list.addresses:
            sent = stranger.post(f"/subscriptions/{blocked_list.list_id}", data={"email": email})
            assert sent.status_code in {200, 303}, sent.text


def confirm(blocked_list: BlockedList) -> None:
    with blocked_list.stack.client() as stranger:
        for each in blocked_list.people.values():
            stranger.post(each.confirm_url())


def press_on_unsubscribe_page(blocked_list: BlockedList, action: str) -> None:
    with blocked_list.stack.client() as stranger:
        for each in blocked_list.people.values():
            stranger.post(each.unsubscribe_url, data={"action": action})


def press_in_preferences(blocked_list: BlockedList, action: str) -> None:
    for each in blocked_list.people.values():
        with blocked_list.stack.client() as browser:
            path = f"/preferences/open?token={each.mailed_token(Purpose.OPEN_PREFERENCES)}"
            assert browser.post(path, data=hidden(browser.get(path))).status_code == 303
            form = {**hidden(browser.get("/preferences")), "list": str(each.list_id)}
            browser.post("/preferences", data={**form, "action": action})


def switch_mail_on(blocked_list: BlockedList) -> None:
    with blocked_list.stack.client() as stranger:
        for each in blocked_list.people.values():
            path, params = (
                f"/subscriptions/{blocked_list.list_id}/email",
                {"trace_id": each.trace_id},
            )
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


def put_member(blocked_list: BlockedList) -> None:
    for email in blocked_list.addresses:
        blocked_list.api.put(f"/lists/{blocked_list.list_id}/members/{email}", json={})


def change_member(blocked_list: BlockedList) -> None:
    for each in blocked_list.people.values():
        path = f"/lists/{blocked_list.list_id}/members/{each.user_id}"
        data(blocked_list.api.patch(path, json={"name": "Another"}))


def add_by_console(blocked_list: BlockedList) -> None:
    for email in blocked_list.addresses:
        blocked_list.console.send(f"/console/lists/{blocked_list.list_id}/members/new", email=email)


def add_in_bulk(blocked_list: BlockedList) -> None:
    data(add(blocked_list.api, blocked_list.list_id, *blocked_list.addresses, prefer="wait=30"))


def import_file(blocked_list: BlockedList) -> None:
    file = of_addresses(*blocked_list.addresses)
    data(upload(blocked_list.api, blocked_list.list_id, file, on_existing="update"))


def transfer(blocked_list: BlockedList) -> None:
    for each in blocked_list.people.values():
        path = f"/subscriptions/{blocked_list.other_id}/members/{each.user_id}/transfer"
        blocked_list.api.post(path, params={"dst_list_id": blocked_list.list_id})


def move_by_console(blocked_list: BlockedList) -> None:
    token = blocked_list.console.visitor.csrf_token()
    for each in blocked_list.people.values():
        path = f"/console/lists/{blocked_list.other_id}/members/{each.user_id}/move"
        form = {"csrf_token": token, "list": str(blocked_list.list_id)}
        blocked_list.console.visitor.client.post(path, data=form)


def undo_bulk_removal(blocked_list: BlockedList) -> None:
    data(blocked_list.api.delete(f"/bulk/{blocked_list.notes['bulk_id']}"))


@dataclass(frozen=True)
class Way:
    """A way to join a mailing list, and the function that sets up the people beforehand.

    Attributes:
        is_own: whether the person joins by their own act, which lifts an opt-out.
        activates: whether joining makes a person who isn't blocked an active member.
    """

    take: Callable[[BlockedList], None]
    before: Callable[[BlockedList], None]
    is_own: bool = False
    activates: bool = True


PAGES_OF_BUTTONS = {
    "on the unsubscribe page": press_on_unsubscribe_page,
    "in the preferences": press_in_preferences,
}
WAYS = {
    "sign-up by JSON": Way(sign_up_by_json, be_strangers),
    "sign-up by form": Way(sign_up_by_form, be_strangers),
    "confirmation": Way(confirm, wait, is_own=True),
    **{
        f"{action} on the unsubscribe page": Way(
            partial(press_on_unsubscribe_page, action=action),
            leave,
            is_own=True,
            activates=activates,
        )
        for action, activates in RETURNING.items()
    },
    **{
        f"{action} in the preferences": Way(
            partial(press_in_preferences, action=action), leave, is_own=True, activates=activates
        )
        for action, activates in RETURNING.items()
    },
    "mail switched on by a trace id": Way(switch_mail_on, leave, is_own=True, activates=False),
    "login by key": Way(join_by_key, leave, is_own=True),
    "login by session": Way(join_by_session, be_strangers, is_own=True),
    "login by program": Way(join_by_program, be_removed, is_own=True),
    "PUT of a stranger": Way(put_member, be_strangers),
    "PUT of a removed member": Way(put_member, be_removed),
    "PATCH": Way(change_member, leave, activates=False),
    "console": Way(add_by_console, be_removed),
    "bulk add": Way(add_in_bulk, be_removed),
    "import of strangers": Way(import_file, be_strangers),
    "import of removed members": Way(import_file, be_removed),
    "transfer": Way(transfer, be_members_elsewhere),
    "move by console": Way(move_by_console, be_members_elsewhere),
    "undo of a bulk removal": Way(undo_bulk_removal, be_removed_in_bulk),
}


@pytest.mark.parametrize("name", WAYS)
def test_person_on_a_deny_list_never_joins_and_opted_out_person_only_by_own_action(
    blocked_list: BlockedList, name: str
) -> None:
    way = WAYS[name]
    meet_people(blocked_list)
    way.before(blocked_list)
    block_people(blocked_list)
    way.take(blocked_list)
    expected = {"nothing"} if way.activates else set()
    of_no_interest = {"opt-out"} if way.is_own else set()
    assert blocked_list.active() - of_no_interest == expected


def test_opt_out_tests_cover_every_button_that_lifts_an_opt_out() -> None:
    assert set(RETURNING) == set(LIFT_OPT_OUT)
