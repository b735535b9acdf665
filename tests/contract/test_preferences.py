"""A reader's preferences: a trace id asks for the link, and the mailed link alone opens them."""

import html
import re
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from devstack.harness.polling import eventually
from devstack.harness.stack import Stack
from tests.support.http.pages import follow_redirect, read_heading, read_text, require_headers
from tests.support.http.replies import data
from tests.support.lists.bounces import bounce_hard, build_mailing
from tests.support.lists.people_on_lists import Subscriber, new_list, subscribe
from tests.support.lists.preferences import (
    mailed_tokens,
    open_link,
    open_preferences,
    receive_token,
    request_link,
)
from tests.support.lists.segments import new_field, put
from tests.support.lists.subscribers import known_member
from tests.support.people.changed_addresses import ask as move
from tests.support.people.changed_addresses import join
from tests.support.people.visiting import Visitor, hidden, new_address, user_id_of
from tests.support.senders.own_senders import new_sender
from tests.support.senders.posting import deliver, delivery_for, report

TITLE = "The Morning Letter"


@pytest.fixture
def browser(stack: Stack) -> Iterator[httpx2.Client]:
    """An HTTP client that keeps cookies, as a browser does."""
    with stack.client() as client:
        yield client


def ask_by_address(client: httpx2.Client, list_id: int, email: str) -> httpx2.Response:
    return client.post("/preferences/ask", params={"list": list_id}, data={"email": email})


def csrf(page: httpx2.Response) -> str:
    return hidden(page)["csrf_token"]


def press(
    browser: httpx2.Client, page: httpx2.Response, list_id: int, action: str
) -> httpx2.Response:
    fields = {"csrf_token": csrf(page), "list": str(list_id), "action": action}
    return browser.post("/preferences", data=fields)


def test_unsubscribe_page_offers_to_mail_a_link_to_the_preferences(
    stranger: httpx2.Client, subscriber: Subscriber
) -> None:
    page = stranger.get("/unsubscribe", params={"trace_id": subscriber.trace_id})
    assert f'action="preferences/ask?trace_id={subscriber.trace_id}"' in page.text
    reply = request_link(stranger, subscriber)
    assert reply.status_code == 303
    assert read_heading(follow_redirect(stranger, reply)) == "Check your e-mail"


def test_preferences_link_request_does_not_reveal_whether_an_address_is_known(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client, subscriber: Subscriber
) -> None:
    elsewhere = subscribe(stack, new_list(client))
    strange = subscribe(stack, subscriber.list_id).email.replace("reader.", "nobody.")
    replies = [
        request_link(stranger, subscriber),
        *(
            ask_by_address(stranger, subscriber.list_id, each.email)
            for each in (subscriber, elsewhere)
        ),
        ask_by_address(stranger, subscriber.list_id, strange),
    ]
    assert {(each.status_code, each.headers["location"]) for each in replies} == {
        (303, replies[0].headers["location"])
    }
    assert len({frozenset(each.headers) for each in replies}) == 1
    # The same work was done for each; what differs is left to the worker.
    noted = stack.query(
        "SELECT email, user_id FROM account_mails WHERE list_id = %s ORDER BY id",
        subscriber.list_id,
    )
    emails = (subscriber.email, subscriber.email, elsewhere.email, strange)
    assert noted == [(each, None) for each in emails]
    assert stack.query("SELECT id FROM users WHERE email = %s", strange) == []


def test_preferences_link_is_mailed_only_to_members_of_lists_of_that_owner(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client, subscriber: Subscriber
) -> None:
    # One owner's lists: a person of one of them is asked about at the other.
    sibling = new_list(client, "Another letter")
    with stack.client(stack.create_owner().key) as other:
        foreign = subscribe(stack, new_list(other))
    assert ask_by_address(stranger, sibling, foreign.email).status_code == 303
    assert ask_by_address(stranger, sibling, subscriber.email).status_code == 303
    eventually(lambda: mailed_tokens(subscriber), what="the link")
    done = eventually(
        lambda: stack.query(
            "SELECT j.result FROM jobs AS j JOIN account_mails AS m ON m.id = j.subject_id"
            " WHERE j.kind = 'subscription.mail_preferences' AND m.email = %s"
            " AND j.status = 'succeeded'",
            foreign.email,
        ),
        what="the end of the job",
    )
    assert done == [({"sent": False},)]
    assert mailed_tokens(foreign) == []


@pytest.mark.parametrize("email", ["", "nobody", "x" * 5000])
def test_preferences_link_request_rejects_malformed_addresses(
    stranger: httpx2.Client, subscriber: Subscriber, email: str
) -> None:
    reply = ask_by_address(stranger, subscriber.list_id, email)
    assert read_heading(reply, 422) == "Manage your subscription"
    assert 'id="email-problem"' in reply.text


def test_preferences_mail_has_the_name_and_the_colour_of_the_list(
    stack: Stack, client: httpx2.Client, browser: httpx2.Client, subscriber: Subscriber
) -> None:
    changes = {"title": "Tea", "colour": "#0f5c6e"}
    data(client.patch(f"/lists/{subscriber.list_id}", json=changes))
    token = receive_token(browser, subscriber)
    [text] = [each["html"] for each in stack.mails(to=subscriber.email) if token in each["html"]]
    assert "border-bottom:2px solid #0f5c6e" in text
    assert "<bdi>Tea</bdi>" in text
    [button] = re.findall(r"<a [^>]*>Open my subscriptions</a>", text)
    assert token in button
    assert "background:#0f5c6e" in button


def test_forged_or_revoked_trace_id_cannot_request_a_preferences_link(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client, subscriber: Subscriber
) -> None:
    forged = stranger.post("/preferences/ask", params={"trace_id": f"{subscriber.trace_id}A"})
    assert read_heading(forged, 403) == "This link doesn’t work"
    data(client.delete(f"/lists/{subscriber.list_id}/traces"))
    assert read_heading(request_link(stranger, subscriber), 403) == "This link doesn’t work"
    page = stranger.get("/unsubscribe", params={"trace_id": subscriber.trace_id})
    assert "preferences/ask" not in page.text
    assert stack.query("SELECT id FROM account_mails WHERE email = %s", subscriber.email) == []


def test_trace_id_does_not_open_preferences_or_other_lists(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client, subscriber: Subscriber
) -> None:
    other = new_list(client, "Another letter")
    put(client, other, subscriber.email)
    by_trace = {"trace_id": subscriber.trace_id}
    for path in ("", "/data", "/data.json", "/erase", f"/answers?list={subscriber.list_id}"):
        reply = stranger.get(f"/preferences{path}", params={**by_trace, "list": subscriber.list_id})
        assert read_heading(reply, 403) == "Please request a new link"
    for path in ("", "/erase", "/answers"):
        fields = {"list": str(other), "action": "leave"}
        params = {**by_trace, "list": str(other)}
        reply = stranger.post(f"/preferences{path}", params=params, data=fields)
        assert read_heading(reply, 403) == "Please request a new link"
    opened = open_link(stranger, subscriber.trace_id, {}, Origin=stack.api_url)
    assert read_heading(opened, 403) == "This link doesn’t work"
    page = stranger.get("/unsubscribe", params=by_trace)
    assert "Another letter" not in page.text
    assert known_member(client, other, subscriber.email)["status"] == "active"


def test_preferences_link_is_usable_only_once_and_opening_its_page_changes_nothing(
    stack: Stack, browser: httpx2.Client, stranger: httpx2.Client, subscriber: Subscriber
) -> None:
    token = receive_token(stranger, subscriber)
    for _ in range(2):
        shown = stranger.get("/preferences/open", params={"token": token})
        assert "Open my subscriptions" in shown.text
        # What ties the button to the browser, and no visit.
        assert re.findall(r"(\w+)=", shown.headers["set-cookie"])[0].endswith("_form")
    opened = open_link(browser, token, {}, Origin=stack.api_url)
    assert opened.status_code == 303
    cookie = opened.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=lax" in cookie
    for reply in (
        stranger.get("/preferences/open", params={"token": token}),
        open_link(stranger, token, {}, Origin=stack.api_url),
    ):
        assert read_heading(reply, 403) == "This link has already been used"
    # Who has the mail can't make the cookie of it.
    name = opened.headers["set-cookie"].partition("=")[0]
    stolen = stranger.get("/preferences", headers={"Cookie": f"{name}={token}"})
    assert read_heading(stolen, 403) == "Please request a new link"


def test_form_from_another_site_cannot_start_a_preferences_session(
    browser: httpx2.Client, stranger: httpx2.Client, subscriber: Subscriber
) -> None:
    # Whoever makes the site has a link of their own, and a form token for their own browser.
    token = receive_token(stranger, subscriber)
    theirs = csrf(stranger.get("/preferences/open", params={"token": token}))
    assert browser.get("/preferences/open", params={"token": token}).status_code == 200
    for fields in ({}, {"csrf_token": theirs}):
        reply = open_link(browser, token, fields, Origin="https://www.example.com")
        assert read_heading(reply, 403) == "We couldn’t verify your request"
        assert "set-cookie" not in reply.headers
    shown = browser.get("/preferences/open", params={"token": token})
    assert open_link(browser, token, {"csrf_token": csrf(shown)}).status_code == 303


def test_preferences_link_and_session_expire_after_one_hour(
    stack: Stack, browser: httpx2.Client, subscriber: Subscriber
) -> None:
    open_preferences(browser, subscriber)
    token = receive_token(browser, subscriber)
    stack.query(
        "UPDATE mailed_links SET expires_at = now() WHERE user_id = %s RETURNING id",
        subscriber.user_id,
    )
    assert read_heading(browser.get("/preferences"), 403) == "Please request a new link"
    reply = open_link(browser, token, {}, Origin=stack.api_url)
    assert read_heading(reply, 403) == "This link doesn’t work"
    late = "SELECT 1 FROM mailed_links WHERE user_id = %s AND expires_at > created_at + '1 hour'"
    assert stack.query(late, subscriber.user_id) == []


def test_address_change_revokes_preferences_links_and_sessions(
    stack: Stack,
    logged_in_visitor: Visitor,
    email: str,
    browser: httpx2.Client,
    client: httpx2.Client,
) -> None:
    list_id = new_list(client)
    new = new_address()
    join(logged_in_visitor, list_id)
    user_id = user_id_of(stack, email)
    before = Subscriber(stack, list_id, user_id, email)
    open_preferences(browser, before)
    token = receive_token(browser, before)
    move(logged_in_visitor, new)
    assert read_heading(browser.get("/preferences"), 403) == "Please request a new link"
    for reply in (
        browser.get("/preferences/open", params={"token": token}),
        open_link(browser, token, {}, Origin=stack.api_url),
    ):
        assert read_heading(reply, 403) == "This link doesn’t work"
    # Only the new mailbox gets another one, and the page names the address that the list has.
    page = open_preferences(browser, Subscriber(stack, list_id, user_id, new))
    shown_email = f'<b class="address"><bdi>{email}</bdi></b>'
    assert f"Your address on these lists is {shown_email}." in read_text(page)
    assert new not in read_text(page)


def test_reader_can_end_the_preferences_session(
    browser: httpx2.Client, subscriber: Subscriber
) -> None:
    page = open_preferences(browser, subscriber)
    kept = dict(browser.cookies)
    done = browser.post("/preferences/end", data={"csrf_token": csrf(page)})
    assert "max-age=0" in done.headers["set-cookie"].lower()
    browser.cookies.update(kept)
    assert read_heading(browser.get("/preferences"), 403) == "Please request a new link"


def test_preferences_of_one_list_have_its_colour_and_of_several_lists_the_default_colour(
    client: httpx2.Client, browser: httpx2.Client, subscriber: Subscriber
) -> None:
    accent = "--accent: #0f5c6e;"
    data(client.patch(f"/lists/{subscriber.list_id}", json={"colour": "#0f5c6e"}))
    asked = follow_redirect(browser, request_link(browser, subscriber))
    token = receive_token(browser, subscriber)
    opening = browser.get("/preferences/open", params={"token": token})
    open_preferences(browser, subscriber)
    paths = ("/preferences", "/preferences/data", "/preferences/erase")
    answers = browser.get(f"/preferences/answers?list={subscriber.list_id}")
    for page in (asked, opening, answers, *map(browser.get, paths)):
        assert accent in page.text
        # Like all pages of a list, these pages name Pressroom only in the footer.
        assert "<header>" not in page.text
    put(client, new_list(client, "Another letter", colour="#6b21a8"), subscriber.email)
    for page in map(browser.get, paths):
        assert page.status_code == 200
        assert accent not in page.text
        assert "#6b21a8" not in page.text


def test_preferences_form_without_valid_csrf_token_changes_nothing(
    browser: httpx2.Client, subscriber: Subscriber
) -> None:
    open_preferences(browser, subscriber)
    before = subscriber.kept()
    fields = {"list": str(subscriber.list_id), "action": "leave"}
    for token in ({}, {"csrf_token": "x" * 43}):
        for path in ("", "/erase", "/end", f"/answers?list={subscriber.list_id}"):
            reply = browser.post(f"/preferences{path}", data={**fields, **token})
            assert reply.status_code == 403
    assert subscriber.kept() == before
    assert read_heading(browser.get("/preferences")) == "Your subscriptions"


def test_preferences_show_and_change_only_lists_of_one_owner(
    stack: Stack, client: httpx2.Client, browser: httpx2.Client, subscriber: Subscriber
) -> None:
    second = new_list(client, "The Evening <Letter>")
    put(client, second, subscriber.email)
    with stack.client(stack.create_owner().key) as other:
        foreign = new_list(other, "Of somebody else")
        put(other, foreign, subscriber.email)
        page = open_preferences(browser, subscriber)
        assert html.escape("The Evening <Letter>") in page.text
        assert "Of somebody else" not in page.text
        for action, stands in (
            ("stop_mail", ("active", False)),
            ("resume_mail", ("active", True)),
            ("leave", ("unsubscribed", True)),
            ("undo", ("active", True)),
        ):
            assert press(browser, page, second, action).status_code == 303
            found = known_member(client, second, subscriber.email)
            assert (found["status"], found["email_enabled"]) == stands
        unknown = new_list(client)
        for list_id in (foreign, unknown):
            for action in ("leave", "undo", "resume_mail"):
                assert read_heading(press(browser, page, list_id, action), 404)
        assert known_member(other, foreign, subscriber.email)["status"] == "active"
    for action in ("", "erase"):
        assert read_heading(press(browser, page, subscriber.list_id, action), 422)
    assert subscriber.stands() == ("active", True)


def test_reader_can_change_only_their_name_and_public_fields(
    client: httpx2.Client, browser: httpx2.Client, subscriber: Subscriber
) -> None:
    for key, kind in (("city", "text"), ("visits", "number"), ("news", "boolean")):
        new_field(client, key, kind, public=True)
    new_field(client, "note")
    put(
        client, subscriber.list_id, subscriber.email, name="A", fields={"note": "kept", "visits": 1}
    )
    open_preferences(browser, subscriber)
    path = f"/preferences/answers?list={subscriber.list_id}"
    page = browser.get(path)
    assert read_heading(page) == "Your name and answers"
    assert 'value="A"' in page.text
    assert "note" not in page.text
    answers = {"fields.city": "Rome", "fields.visits": "many", "fields.news": "no", "name": "Ada"}
    wrong = browser.post(path, data={**answers, "csrf_token": csrf(page)})
    assert read_heading(wrong, 422) == "Your name and answers"
    assert 'id="fields.visits-problem"' in wrong.text
    assert 'value="Rome"' in wrong.text
    answers["fields.visits"] = ""
    assert browser.post(path, data={**answers, "csrf_token": csrf(page)}).status_code == 303
    found = known_member(client, subscriber.list_id, subscriber.email)
    assert found["name"] == "Ada"
    assert found["fields"] == {"city": "Rome", "news": False, "note": "kept"}
    long = browser.post(path, data={"name": "x" * 201, "csrf_token": csrf(page)})
    assert read_heading(long, 422) == "Your name and answers"
    assert 'id="name-problem"' in long.text
    closed = browser.post(path, data={"fields.note": "x", "csrf_token": csrf(page)})
    assert closed.status_code == 422
    assert known_member(client, subscriber.list_id, subscriber.email)["fields"]["note"] == "kept"


def test_reader_sees_and_downloads_all_personal_data_of_one_owner(
    stack: Stack, client: httpx2.Client, browser: httpx2.Client, subscriber: Subscriber
) -> None:
    new_field(client, "note", label="Height & more")
    body = {"name": "Ada", "fields": {"note": "tall <b>"}, "tags": ["VIP"]}
    put(client, subscriber.list_id, subscriber.email, **body)
    with stack.client(stack.create_owner().key) as other:
        put(other, new_list(other, "Of somebody else"), subscriber.email, name="Secret")
    open_preferences(browser, subscriber)
    page = browser.get("/preferences/data")
    assert read_heading(page) == "Your data"
    # The page allows line breaks inside of the address.
    page_text = page.text.replace("<wbr>", "")
    for text in ("Ada", "Height &amp; more", html.escape("tall <b>"), "VIP", subscriber.email):
        assert text in page_text
    assert re.search(r"<bdi>\d{1,2} [A-Z][a-z]{2,3} \d{4}, \d{2}:\d{2}</bdi>", page_text)
    reply = browser.get("/preferences/data.json")
    require_headers(reply)
    assert reply.headers["content-type"] == "application/json"
    assert reply.headers["content-disposition"].startswith("attachment;")
    found = reply.json()
    assert found["email"] == subscriber.email
    [of_list] = found["lists"]
    assert (of_list["name"], of_list["fields"], of_list["tags"]) == (
        "Ada",
        {"note": "tall <b>"},
        ["VIP"],
    )
    assert [each["action"] for each in of_list["history"]][-1] == "requested"
    assert of_list["consent"][-1]["how"] == "form"
    assert "Secret" not in page.text + reply.text
    # The data about the person also contains bounces and the person's reports about lists.
    bounce_hard(stack, build_mailing(subscriber.list_id, subscriber.user_id))
    browser.post("/report", params={"trace_id": subscriber.trace_id})
    found = browser.get("/preferences/data.json").json()
    assert [(each["is_hard"], each["status"]) for each in found["bounces"]] == [(True, "5.1.1")]
    assert "because your address returned an e-mail" in browser.get("/preferences/data").text
    assert [each["kind"] for each in found["opt_outs"]] == ["list"]
    assert len(found["reports"]) == 1


def test_reader_downloads_the_reports_of_senders_about_their_mail(
    stack: Stack, client: httpx2.Client, browser: httpx2.Client, subscriber: Subscriber
) -> None:
    with stack.client(stack.create_owner().key) as other:
        foreign_id = new_list(other, "Of somebody else")
        put(other, foreign_id, subscriber.email)
        for owner, list_id in ((client, subscriber.list_id), (other, foreign_id)):
            delivery_id = delivery_for(stack, int(list_id), subscriber.user_id)
            deliver(stack, owner, new_sender(owner), report("delivered", delivery_id=delivery_id))
    open_preferences(browser, subscriber)
    [found] = browser.get("/preferences/data.json").json()["sender_reports"]
    assert (found["kind"], found["outcome"]) == ("delivered", "applied")
    assert found["list"] != "Of somebody else"


def test_reader_is_erased_after_confirmation_in_the_preferences(
    stack: Stack, browser: httpx2.Client, subscriber: Subscriber
) -> None:
    open_preferences(browser, subscriber)
    page = browser.get("/preferences/erase")
    assert read_heading(page) == "Delete my data"
    assert subscriber.stands() == ("active", True)
    done = browser.post("/preferences/erase", data={"csrf_token": csrf(page)})
    # This one page sets a cookie: it has the browser forget the visit.
    assert "max-age=0" in done.headers.pop("set-cookie").lower()
    assert read_heading(done) == "Your data is being deleted"
    assert read_heading(browser.get("/preferences"), 403) == "Please request a new link"

    email = "SELECT email FROM users WHERE id = %s"
    erased = [(f"erased-{subscriber.user_id}@erased.invalid",)]
    eventually(lambda: stack.query(email, subscriber.user_id) == erased, what="the erasure")


def test_preferences_link_cannot_erase_a_person_with_an_account(
    stack: Stack, client: httpx2.Client, browser: httpx2.Client
) -> None:
    list_id = new_list(client)
    person = stack.create_owner()
    put(client, list_id, person.email)
    stack.query("UPDATE users SET password_hash = 'x' WHERE id = %s RETURNING id", person.user_id)
    reader = Subscriber(stack, list_id, person.user_id, person.email)
    page = open_preferences(browser, reader)
    shown = browser.get("/preferences/erase")
    assert "belongs to an account" in shown.text
    assert "<button" not in shown.text
    reply = browser.post("/preferences/erase", data={"csrf_token": csrf(page)})
    assert reply.status_code == 403
    assert reader.stands() == ("active", True)


def test_erasure_page_warns_readers_who_are_on_lists_of_other_owners(
    stack: Stack, browser: httpx2.Client, subscriber: Subscriber
) -> None:
    open_preferences(browser, subscriber)
    told = "You are also on lists of other owners"
    assert told not in browser.get("/preferences/erase").text
    with stack.client(stack.create_owner().key) as other:
        put(other, new_list(other), subscriber.email)
    assert told in browser.get("/preferences/erase").text


def test_unknown_unsubscribe_reason_is_not_stored(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client
) -> None:
    list_id = new_list(client)
    bodies: list[tuple[dict[str, Any], str | None]] = [
        ({"data": {"action": "leave", "reason": "too_many"}}, "too_many"),
        ({"data": {"action": "leave", "reason": "<b>"}}, None),
        ({"data": {"action": "leave"}}, None),
        ({"json": {"action": "leave", "reason": ["too_many"]}}, None),
    ]
    for body, kept in bodies:
        reader = subscribe(stack, list_id)
        reply = stranger.post("/unsubscribe", params={"trace_id": reader.trace_id}, **body)
        assert reply.status_code == 303
        history = f"/lists/{list_id}/members/{reader.user_id}/history"
        newest = data(client.get(history))["items"][0]
        assert (newest["action"], newest["reason"]) == ("unsubscribed", kept)
