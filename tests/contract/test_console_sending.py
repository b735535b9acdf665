"""Tests of the console pages that lead an owner from a list to its first issue."""

import re

from devstack.harness.stack import Stack
from tests.support.http.replies import data, problem
from tests.support.imports.bulk import add, export, export_rows
from tests.support.lists.subscribers import new_address, new_list
from tests.support.people.consoles import (
    OwnerAtConsole,
    at_console,
    calls_of,
    forms_of,
    read_error,
    read_page,
)
from tests.support.senders.mailings import new_mailing
from tests.support.senders.own_senders import new_sender


def send_path(list_id: int) -> str:
    return f"/console/lists/{list_id}/send"


def test_owner_creates_a_key_for_sending_that_exports_only_this_list(
    stack: Stack, console: OwnerAtConsole
) -> None:
    list_id, other_list_id = (int(new_list(console.api)["id"]) for _ in range(2))
    email = new_address()
    data(add(console.api, list_id, email))
    path = send_path(list_id)
    assert f'href="{stack.api_url}{path}/key"' in console.see(path)
    reply = console.send(f"{path}/key", name=" ")
    assert read_error(read_page(reply, 422), "name")
    text = read_page(console.send(f"{path}/key", name="My <program>"))
    assert f'href="{stack.api_url}{path}">Done' in text
    [secret] = re.findall(r'id="secret" value="(\w+)"', text)
    with stack.client(secret) as program:
        assert [row["email"] for row in export_rows(program, list_id, "delivery")] == [email]
        problem(export(program, other_list_id, "delivery"), 403, "auth.insufficient_scope")
    page = console.see(path)
    assert "My &lt;program&gt; (…" in page
    assert secret not in page
    assert "Your last mailing" in page
    assert "My &lt;program&gt;" not in console.see(send_path(other_list_id))


def test_send_page_shows_the_senders_and_the_last_mailing_of_the_list(
    stack: Stack, console: OwnerAtConsole
) -> None:
    list_id, other_list_id = (int(new_list(console.api)["id"]) for _ in range(2))
    text = console.see(send_path(list_id))
    assert "Connect a mail service" in text
    assert "Your last mailing" not in text
    new_sender(console.api, name="For all", list_ids=None)
    new_sender(console.api, name="For another", list_ids=[other_list_id])
    new_mailing(stack, list_id, rows=3, label="September letter")
    newest_id = new_mailing(stack, list_id, rows=2)
    text = console.see(send_path(list_id))
    assert "For all" in text
    assert "For another" not in text
    assert "Connect a mail service" not in text
    assert f"Mailing {newest_id}" in text
    assert "September letter" not in text


def test_send_page_marks_the_reports_as_done_only_if_no_sender_fails(
    stack: Stack, console: OwnerAtConsole
) -> None:
    list_id = int(new_list(console.api)["id"])
    working_sender, failing_sender = (new_sender(console.api)["id"] for _ in range(2))
    set_state = "UPDATE senders SET state = %s WHERE id = %s"
    stack.query(set_state, "working", working_sender)
    done_step = '<li class="done"><h2>Reports about the mail</h2>'
    assert done_step in console.see(send_path(list_id))
    stack.query(set_state, "failing", failing_sender)
    text = console.see(send_path(list_id))
    assert done_step not in text
    # The failing sender comes first, and its row leads to the repair.
    sender_ids = re.findall(r"/console/developers/senders/(\w+)", text)
    assert sender_ids == [str(each) for each in (failing_sender, failing_sender, working_sender)]
    assert "See how to repair it" in text


def test_send_page_states_each_step_of_a_program_that_sends(console: OwnerAtConsole) -> None:
    list_id = int(new_list(console.api)["id"])
    text = console.see(send_path(list_id))
    [call] = calls_of(text)
    assert call.path == f"/lists/{list_id}/exports"
    assert "<code>List-Unsubscribe-Post</code>" in text
    assert "docs/sending.md" not in text


def test_send_page_names_the_operator_if_owners_cannot_create_keys(
    stack: Stack, console: OwnerAtConsole
) -> None:
    mailing_list = new_list(console.api)
    with (
        stack.run_second_api(PRESSROOM_OWNERS_SEND="false") as api,
        at_console(api, console.owner) as owner,
    ):
        text = owner.see(send_path(mailing_list["id"]))
        assert "Ask them for an API key with the scope <code>delivery</code>" in text
        assert "/send/key" not in text
        path = f"{send_path(mailing_list['id'])}/key"
        [(_, values)] = forms_of(owner.visitor.get(path))
        # The form's address is that of the first API process.
        reply = owner.visitor.client.post(path, data=values)
        assert "doesn&#39;t allow" in read_page(reply, 403)
