"""Tests of leaked trace ids, the tokens in the links of mails.

A leaked trace id must reveal little about the recipient of the mail. The list's owner can revoke
the trace ids in mails. The trace ids that the owner exports with a limited API key only let people
leave.
"""

import base64
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx2
import pytest
from fastapi.dependencies.models import Dependant

from api.app import create_app
from api.openapi.document import list_api_routes
from core.ids import PersonId
from core.settings import Settings
from devstack.harness.stack import Owner, Stack
from services.subscriptions.members import traces
from services.subscriptions.members.traces import Trace
from tests.support.commands.running import run_json_command
from tests.support.http.replies import data, problem
from tests.support.imports.bulk import export_rows
from tests.support.lists.subscribers import (
    Reader,
    await_mails,
    confirm,
    new_list,
    new_reader,
    subscribe,
    trace_for,
)
from tests.support.people.limited_keys import create_limited_key

OPPONENT = "/subscriptions/opponent"


@pytest.fixture
def reader(stack: Stack, list_id: int) -> Iterator[Reader]:
    with new_reader(stack) as reader:
        yield reader.joins(list_id)


def test_trace_id_shows_masked_address_and_no_name(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client, reader: Reader, list_id: int
) -> None:
    gold_member = {"type": "gold", "paid_expiry": "2031-05-06T00:00:00Z"}
    data(client.patch(f"/lists/{list_id}/members/{reader.user_id}", json=gold_member))
    trace_id = trace_for(stack, list_id, reader.user_id)
    record = data(stranger.get(OPPONENT, params={"trace_id": trace_id}))["sub"]
    hidden_fields = ("email", "name", "user_id", "paid_expiry")
    masked_values = [f"{reader.email[0]}…@example.com", None, None, None]
    assert [record[each] for each in hidden_fields] == masked_values
    assert (record["type"], record["status"]) == ("gold", "active")
    own_record = data(reader.client.get(OPPONENT, params={"list_id": list_id}))["sub"]
    assert (own_record["email"], own_record["user_id"]) == (reader.email, reader.user_id)
    assert own_record["paid_expiry"]


def test_revoked_trace_id_can_only_unsubscribe_and_turn_mail_off(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client, reader: Reader, list_id: int
) -> None:
    revoked_trace = {
        "trace_id": run_json_command(stack, "trace", str(list_id), reader.email)["trace_id"]
    }
    page = f"/unsubscribe?trace_id={revoked_trace['trace_id']}"
    assert reader.email.partition("@")[2] in stranger.get(page).text
    assert data(client.delete(f"/lists/{list_id}/traces")) == 1
    problem(stranger.get(OPPONENT, params=revoked_trace), 403, "trace.invalid")
    email = f"/subscriptions/{list_id}/email"
    problem(stranger.put(email, json={**revoked_trace, "enabled": True}), 403, "trace.invalid")
    text = stranger.get(page).text
    assert "Unsubscribe from this list" in text
    assert "@" not in re.sub(r"<style>.*?</style>", "", text, flags=re.DOTALL)
    assert data(stranger.put(email, json={**revoked_trace, "enabled": False})) == 1
    assert reader.read_status(list_id) == ("active", False)
    one_click = {"List-Unsubscribe": "One-Click"}
    assert stranger.post(page, data=one_click).status_code == 200
    assert data(stranger.post(f"/subscriptions/{list_id}/delete", json=revoked_trace)) == 1
    assert stranger.post(page, data={"action": "leave"}).status_code == 303
    assert reader.read_status(list_id)[0] == "unsubscribed"
    text = stranger.get(page).text
    assert "You have unsubscribed" in text
    assert 'value="undo"' not in text
    for action in ("undo", "resume_mail"):
        assert stranger.post(page, data={"action": action}).status_code == 403
    assert reader.read_status(list_id)[0] == "unsubscribed"
    assert data(stranger.delete(f"/subscriptions/{list_id}", params=revoked_trace)) == 1


def test_revoking_trace_ids_keeps_later_deliveries_and_other_lists_valid(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client, reader: Reader, list_id: int
) -> None:
    other_list_id = new_list(client)["id"]
    reader.joins(other_list_id)
    other_trace_id = trace_for(stack, other_list_id, reader.user_id)
    data(client.delete(f"/lists/{list_id}/traces"))
    keyring = stack.resources.keyring
    with stack.resources.unit_of_work() as uow:
        delivery_number = traces.allocate_delivery_number(uow)
    new_trace_id = traces.create_trace_id(
        keyring, Trace(list_id, PersonId(reader.user_id), delivery_number)
    )
    for trace_id in (new_trace_id, other_trace_id):
        assert data(stranger.get(OPPONENT, params={"trace_id": trace_id}))["sub"]


@dataclass(frozen=True)
class TraceUse:
    """A request with a trace id.

    Attributes:
        body: the fields of the request's JSON body, or of the form that a page contains.
        status: the expected status for a limited trace id.
        expected: the person's status on the list after the request, and whether they get mail.
    """

    operation: str
    body: dict[str, Any] = field(default_factory=dict)
    status: int = 200
    expected: tuple[str, bool] = ("active", True)


LEFT = ("unsubscribed", True)
WITHOUT_MAIL = ("active", False)
ONE_CLICK = {"List-Unsubscribe": "One-Click"}
_EMAIL = "PUT /subscriptions/{list_id}/email"
_ENGAGEMENT = "PUT /subscriptions/{list_id}/engagement"
_PAGE = "POST /unsubscribe"
LEAVING_USES = (
    TraceUse("DELETE /subscriptions/{list_id}", expected=LEFT),
    TraceUse(_EMAIL, {"enabled": False}, expected=WITHOUT_MAIL),
    TraceUse("POST /subscriptions/{list_id}/delete", expected=WITHOUT_MAIL),
    TraceUse("GET /unsubscribe"),
    TraceUse(_PAGE, ONE_CLICK, expected=WITHOUT_MAIL),
    TraceUse(_PAGE, {"action": "leave"}, 303, LEFT),
    TraceUse(_PAGE, {"action": "stop_mail"}, 303, WITHOUT_MAIL),
    TraceUse("GET /engagement"),
    TraceUse("POST /engagement", {"action": "no"}, 303),
    TraceUse(_ENGAGEMENT, {"enabled": False}),
    TraceUse("GET /report"),
    TraceUse("POST /report", status=303, expected=LEFT),
)
# Uses after the person has left the list or has turned off its mail. None of them may succeed.
OTHER_USES = (
    TraceUse("GET /subscriptions/opponent", status=403, expected=LEFT),
    TraceUse(_EMAIL, {"enabled": True}, 403, LEFT),
    TraceUse(_EMAIL, {"enabled": True}, 403, WITHOUT_MAIL),
    TraceUse(_ENGAGEMENT, {"enabled": True}, 403, LEFT),
    TraceUse("POST /engagement", {"action": "yes"}, 403, LEFT),
    TraceUse(_PAGE, {"action": "undo"}, 403, LEFT),
    TraceUse(_PAGE, {"action": "resume_mail"}, 403, WITHOUT_MAIL),
    TraceUse("POST /preferences/ask", status=403, expected=LEFT),
    # The page reads a trace id like other pages, but only confirms a subscription with a token.
    TraceUse("POST /confirm", status=400, expected=LEFT),
)


def has_trace_id(dependant: Dependant) -> bool:
    """Return whether a route reads a trace id from the query."""
    names = {parameter.alias for parameter in dependant.query_params}
    return "trace_id" in names or any(map(has_trace_id, dependant.dependencies))


def test_limited_trace_id_is_tested_at_every_route_that_reads_a_trace_id() -> None:
    reading_routes = {
        f"{method} {route.path_format}"
        for route in list_api_routes(create_app(Settings.model_construct()))
        for method in route.methods or ()
        if has_trace_id(route.dependant)
    }
    assert reading_routes == {use.operation for use in (*LEAVING_USES, *OTHER_USES)}


@pytest.fixture
def limited_trace_id(
    stack: Stack, owner: Owner, client: httpx2.Client, reader: Reader, list_id: int
) -> str:
    """The trace id of the fixture `reader` in a roster that a limited API key exported."""
    key = create_limited_key(stack, owner, list_id)
    with stack.client(key["key"]) as sending_program:
        [row] = export_rows(sending_program, list_id, "delivery")
    assert row["email"] == reader.email
    return row["trace_id"]


def use_trace_id(
    client: httpx2.Client, use: TraceUse, trace_id: str, list_id: int
) -> httpx2.Response:
    method, path = use.operation.format(list_id=list_id).split(" ")
    content = {"data": use.body} if path in {"/unsubscribe", "/engagement"} else {"json": use.body}
    sent = content if use.body else {}
    return client.request(method, path, params={"trace_id": trace_id}, **sent)  # type: ignore[arg-type]


@pytest.mark.parametrize("use", LEAVING_USES, ids=str)
def test_limited_trace_id_lets_the_person_leave(
    stranger: httpx2.Client, reader: Reader, list_id: int, limited_trace_id: str, use: TraceUse
) -> None:
    reply = use_trace_id(stranger, use, limited_trace_id, list_id)
    assert reply.status_code == use.status, reply.text
    assert reader.read_status(list_id) == use.expected


@pytest.mark.parametrize("use", OTHER_USES, ids=str)
def test_limited_trace_id_allows_nothing_but_leaving(
    stranger: httpx2.Client, reader: Reader, list_id: int, limited_trace_id: str, use: TraceUse
) -> None:
    """The list's owner holds the trace id, and could undo an opt-out in the person's name."""
    if use.expected == LEFT:
        reader.leaves(list_id)
    else:
        reader.wants_mail(list_id, False)
    reply = use_trace_id(stranger, use, limited_trace_id, list_id)
    assert reply.status_code == use.status, reply.text
    if use.operation.split("/")[1] == "subscriptions":
        problem(reply, 403, "trace.invalid")
    assert reader.read_status(list_id) == use.expected


def exchange_bytes(trace_id: str, start: int, content: bytes) -> str:
    """Replace a part of the trace id's payload, as a forger without the key does."""
    signed, _, signature = trace_id.partition(".")
    payload = bytearray(base64.urlsafe_b64decode(signed[1:] + "=="))
    payload[start : start + len(content)] = content
    encoded = base64.urlsafe_b64encode(payload).decode().rstrip("=")
    return f"{signed[0]}{encoded}.{signature}"


def test_limited_trace_id_with_another_list_or_without_its_mark_is_rejected(
    client: httpx2.Client,
    stranger: httpx2.Client,
    reader: Reader,
    list_id: int,
    limited_trace_id: str,
) -> None:
    other_list_id = new_list(client)["id"]
    reader.joins(other_list_id)
    with_other_list = exchange_bytes(limited_trace_id, 0, other_list_id.to_bytes(7, "big"))
    without_mark = exchange_bytes(limited_trace_id, 14, b"\0")
    assert limited_trace_id not in (with_other_list, without_mark)
    for trace_id, path_list_id in (
        (limited_trace_id, other_list_id),
        (with_other_list, other_list_id),
        (without_mark, list_id),
    ):
        reply = stranger.delete(f"/subscriptions/{path_list_id}", params={"trace_id": trace_id})
        problem(reply, 403, "trace.invalid")
    assert reader.read_status(list_id) == reader.read_status(other_list_id) == ("active", True)


def test_unsubscribe_page_of_a_limited_trace_id_leads_to_the_sign_up_page_instead_of_an_undo(
    *,
    stack: Stack,
    client: httpx2.Client,
    stranger: httpx2.Client,
    reader: Reader,
    list_id: int,
    limited_trace_id: str,
) -> None:
    page = f"/unsubscribe?trace_id={limited_trace_id}"
    slug = data(client.get(f"/lists/{list_id}"))["slug"]
    sign_up_link = f'href="s/{slug}"'
    assert sign_up_link not in stranger.get(page).text
    assert stranger.post(page, data={"action": "leave"}).status_code == 303
    text = stranger.get(page).text
    assert "You have unsubscribed" in text
    assert sign_up_link in text
    assert 'value="undo"' not in text
    # The preferences are only reached by a mailed link, so the page asks for the address.
    assert 'action="preferences/ask"' in text
    assert stranger.get(f"/preferences/ask?list={slug}").status_code == 200
    assert stranger.get(f"/s/{slug}").status_code == 200
    data(subscribe(stranger, list_id, reader.email))
    [mail] = await_mails(stack, reader.email)
    assert reader.read_status(list_id)[0] == "pending"
    assert confirm(stranger, mail).status_code == 303
    assert reader.read_status(list_id) == ("active", True)
    data(client.delete(f"/lists/{list_id}"))
    stranger.post(page, data={"action": "leave"})
    assert sign_up_link not in stranger.get(page).text
