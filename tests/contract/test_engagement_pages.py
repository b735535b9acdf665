"""Tests of the readers' pages that ask whether a list may record opens and clicks."""

import httpx2
import pytest

from core.ids import PersonId
from devstack.harness.stack import Stack
from services.subscriptions.members.traces import Trace, create_trace_id
from tests.support.http.pages import read_text
from tests.support.http.replies import data
from tests.support.lists.measured_lists import MeasuredList, new_measured_list
from tests.support.lists.people_on_lists import Subscriber
from tests.support.lists.preferences import open_preferences
from tests.support.lists.subscribers import (
    Reader,
    await_mails,
    new_address,
    new_list,
    read_confirmation_token,
    require_member,
    trace_for,
)
from tests.support.people.visiting import read_hidden_fields
from tests.support.senders.own_senders import new_sender


def read_page(client: httpx2.Client, path: str, **query: object) -> str:
    reply = client.get(path, params=query)  # type: ignore[arg-type]
    assert reply.status_code == 200, reply.text
    return read_text(reply)


def test_page_of_a_trace_id_shows_the_question_and_stores_the_answer(
    measured: MeasuredList, stranger: httpx2.Client
) -> None:
    user_id = measured.add_member()
    measured.report_event("opened", user_id)
    query = {"trace_id": trace_for(measured.stack, measured.id, user_id)}
    page = read_page(stranger, "/engagement", **query)
    assert "This list may record how many of its e-mails I open and click" in page
    assert "for 30 days which" in page
    # Opening the page changes nothing.
    assert measured.read_member(user_id)["engagement_choice"] is None
    for action, sentence in (("no", "You said no."), ("yes", "You said yes.")):
        reply = stranger.post("/engagement", params=query, data={"action": action})
        assert reply.status_code == 303
        assert sentence in read_page(stranger, "/engagement", **query)
        assert measured.read_member(user_id)["engagement_choice"]["answer"] == action
    assert measured.count_marks(user_id) == 0
    reply = stranger.post("/engagement", params=query, data={"action": "maybe"})
    assert reply.status_code == 422


def test_page_of_a_limited_trace_id_mails_a_link_instead_of_storing_a_yes(
    measured: MeasuredList, stranger: httpx2.Client
) -> None:
    user_id = measured.add_member()
    trace = Trace(measured.id, PersonId(user_id), 1, is_limited=True)
    query = {"trace_id": create_trace_id(measured.stack.resources.keyring, trace)}
    page = stranger.get("/engagement", params=query)
    assert 'value="yes"' not in page.text
    assert "mail me a link" in read_text(page)
    reply = stranger.post("/engagement", params=query, data={"action": "yes"})
    assert reply.status_code == 403
    assert stranger.post("/engagement", params=query, data={"action": "no"}).status_code == 303
    assert measured.read_member(user_id)["engagement_choice"]["answer"] == "no"


def test_person_answers_on_the_preferences_page_in_every_mode(
    stack: Stack, client: httpx2.Client, subscriber: Subscriber
) -> None:
    with stack.client() as browser:
        preferences = open_preferences(browser, subscriber)
        path = f"/preferences/engagement?list={subscriber.list_id}"
        assert path in preferences.text
        page = browser.get(path)
        assert "At the moment, this list keeps nothing" in read_text(page)
        fields = {"csrf_token": read_hidden_fields(page)["csrf_token"], "action": "no"}
        assert browser.post(path, data={"action": "no"}).status_code == 403
        reply = browser.post(path, data=fields)
        assert reply.status_code == 303
        assert "You said no." in read_text(browser.get(path))
        known = browser.get("/preferences/data.json").json()
        [opt_out] = known["opt_outs"]
        assert opt_out["kind"] == "engagement"
        [known_list] = known["lists"]
        assert known_list["engagement_choice"]["answer"] == "no"
        text = read_text(browser.get("/preferences/data"))
        assert "the counting of opens and clicks" in text.lower()
    member = data(client.get(f"/lists/{subscriber.list_id}/members/{subscriber.user_id}"))
    assert member["engagement_choice"]["answer"] == "no"


def test_copy_of_a_persons_data_contains_the_engagement_but_no_marks(
    stack: Stack, client: httpx2.Client, subscriber: Subscriber
) -> None:
    sender = new_sender(client, list_ids=[subscriber.list_id])
    measured = MeasuredList(stack, client, subscriber.list_id, sender)
    measured.set_mode("all")
    measured.report_event("opened", subscriber.user_id, 4711)
    with stack.client() as browser:
        open_preferences(browser, subscriber)
        reply = browser.get("/preferences/data.json")
        [known_list] = reply.json()["lists"]
        assert known_list["engagement"]["opens"] == 1
        assert "4711" not in reply.text
        assert "Opened: 1" in read_text(browser.get("/preferences/data"))


@pytest.mark.parametrize(
    ("mode", "has_box", "has_notice"),
    [("off", False, False), ("consent", True, True), ("all", False, True)],
)
def test_sign_up_page_and_embedded_form_ask_only_for_consent(
    client: httpx2.Client, stranger: httpx2.Client, mode: str, *, has_box: bool, has_notice: bool
) -> None:
    wording = "May we count which letters you open?"
    mailing_list = new_list(client, engagement=mode, engagement_wording=wording)
    page = stranger.get(f"/s/{mailing_list['slug']}").text
    form = data(client.get(f"/lists/{mailing_list['id']}/embed"))["html"]
    for text in (page, form):
        assert ('name="engagement"' in text) is has_box
        assert (wording in text) is has_box
        assert ("for 30 days" in " ".join(text.split())) is has_notice
    assert " checked" not in page + form


def test_box_on_the_confirmation_page_decides(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client
) -> None:
    """A stranger may have entered the address and said yes."""
    asking = new_measured_list(stack, client, "consent", confirm_required=True)
    for box in ("yes", None):
        email = new_address()
        fields = {"email": email, "engagement": "yes"}
        assert stranger.post(f"/subscriptions/{asking.id}", data=fields).status_code == 303
        [mail] = await_mails(stack, email)
        query = {"token": read_confirmation_token(mail)}
        assert " checked" in stranger.get("/confirm", params=query).text
        form = {"asked": "engagement"} | ({"engagement": box} if box else {})
        assert stranger.post("/confirm", params=query, data=form).status_code == 303
        choice = require_member(client, asking.id, email)["engagement_choice"]
        assert (choice and choice["answer"]) == box


def test_yes_of_a_stranger_for_a_former_member_changes_nothing_without_a_confirmation(
    asking: MeasuredList, reader: Reader, stranger: httpx2.Client
) -> None:
    reader.joins(asking.id)
    asking.answer(stranger, reader.user_id, enabled=False)
    body = {"email": reader.email, "engagement": True}
    assert data(stranger.post(f"/subscriptions/{asking.id}", json=body)) == 1
    assert asking.read_member(reader.user_id)["engagement_choice"]["answer"] == "no"
    reader.leaves(asking.id)
    assert data(stranger.post(f"/subscriptions/{asking.id}", json=body)) == 1
    assert asking.read_member(reader.user_id)["engagement_choice"]["answer"] == "no"
