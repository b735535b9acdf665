"""Tests of leaked trace ids, the tokens in the links of mails.

A leaked trace id must reveal little about the recipient of the mail. The list's owner can revoke
the trace ids in mails.
"""

import re
from collections.abc import Iterator

import httpx2
import pytest

from devstack.harness.stack import Stack
from services.subscriptions.members import traces
from services.subscriptions.members.traces import Trace
from tests.support.commands.running import run_json_command
from tests.support.http.replies import data, problem
from tests.support.lists.subscribers import Reader, new_list, new_reader, trace_for

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
    new_trace_id = traces.create_trace_id(keyring, Trace(list_id, reader.user_id, delivery_number))
    for trace_id in (new_trace_id, other_trace_id):
        assert data(stranger.get(OPPONENT, params={"trace_id": trace_id}))["sub"]
