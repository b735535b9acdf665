"""Tests of the preferences pages, which a reader opens with a mailed link."""

import html
import re
from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import httpx2
import pytest

from devstack.harness.polling import eventually
from devstack.harness.stack import Stack
from services.subscriptions.fields import MAX_FIELDS
from tests.support.http.pages import follow_redirect, read_heading, read_text, require_headers
from tests.support.http.replies import data
from tests.support.imports.bulk import build_address_file, import_members_file
from tests.support.lists.bounces import bounce_hard, build_mailing
from tests.support.lists.people_on_lists import Subscriber, new_list, subscribe
from tests.support.lists.preferences import (
    mailed_tokens,
    open_link,
    open_preferences,
    receive_token,
    request_link,
)
from tests.support.lists.segments import new_field, put_member
from tests.support.lists.subscribers import require_member
from tests.support.people.changed_addresses import change_own_address as move
from tests.support.people.changed_addresses import join
from tests.support.people.consoles import forms_of
from tests.support.people.visiting import Visitor, new_address, read_hidden_fields, user_id_of
from tests.support.senders.own_senders import new_sender
from tests.support.senders.posting import deliver, delivery_for, report

TITLE = "The Morning Letter"
PARTLY_SAVED = "Some answers weren’t saved, because this page was out of date."


@pytest.fixture
def browser(stack: Stack) -> Iterator[httpx2.Client]:
    """An HTTP client that keeps cookies, as a browser does."""
    with stack.client() as client:
        yield client


def request_by_address(client: httpx2.Client, list_id: int, email: str) -> httpx2.Response:
    return client.post("/preferences/ask", params={"list": list_id}, data={"email": email})


def read_csrf(page: httpx2.Response) -> str:
    return read_hidden_fields(page)["csrf_token"]


def submit_action(
    browser: httpx2.Client, page: httpx2.Response, list_id: int, action: str
) -> httpx2.Response:
    fields = {"csrf_token": read_csrf(page), "list": str(list_id), "action": action}
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
    member_of_other_list = subscribe(stack, new_list(client))
    unknown_email = subscribe(stack, subscriber.list_id).email.replace("reader.", "nobody.")
    replies = [
        request_link(stranger, subscriber),
        *(
            request_by_address(stranger, subscriber.list_id, each.email)
            for each in (subscriber, member_of_other_list)
        ),
        request_by_address(stranger, subscriber.list_id, unknown_email),
    ]
    assert {(each.status_code, each.headers["location"]) for each in replies} == {
        (303, replies[0].headers["location"])
    }
    assert len({frozenset(each.headers) for each in replies}) == 1
    # Each request only enqueues a mail. A worker later finds the person with the address.
    mail_rows = stack.query(
        "SELECT email, user_id FROM account_mails WHERE list_id = %s ORDER BY id",
        subscriber.list_id,
    )
    emails = (subscriber.email, subscriber.email, member_of_other_list.email, unknown_email)
    assert mail_rows == [(each, None) for each in emails]
    assert stack.query("SELECT id FROM users WHERE email = %s", unknown_email) == []


def test_preferences_link_is_mailed_only_to_members_of_lists_of_that_owner(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client, subscriber: Subscriber
) -> None:
    # Members can also request the preferences link on the form of another list of the same owner.
    second_list_id = new_list(client, "Another letter")
    with stack.client(stack.create_owner().key) as other_owner:
        foreign_subscriber = subscribe(stack, new_list(other_owner))
    assert request_by_address(stranger, second_list_id, foreign_subscriber.email).status_code == 303
    assert request_by_address(stranger, second_list_id, subscriber.email).status_code == 303
    eventually(lambda: mailed_tokens(subscriber), what="the link")
    job_results = eventually(
        lambda: stack.query(
            "SELECT j.result FROM jobs AS j JOIN account_mails AS m ON m.id = j.subject_id"
            " WHERE j.kind = 'subscription.mail_preferences' AND m.email = %s"
            " AND j.status = 'succeeded'",
            foreign_subscriber.email,
        ),
        what="the end of the job",
    )
    assert job_results == [({"sent": False},)]
    assert mailed_tokens(foreign_subscriber) == []


@pytest.mark.parametrize("email", ["", "nobody", "x" * 5000])
def test_preferences_link_request_rejects_malformed_addresses(
    stranger: httpx2.Client, subscriber: Subscriber, email: str
) -> None:
    reply = request_by_address(stranger, subscriber.list_id, email)
    assert read_heading(reply, 422) == "Manage your subscription"
    assert 'id="email-problem"' in reply.text


def test_preferences_mail_has_the_name_and_the_colour_of_the_list(
    stack: Stack, client: httpx2.Client, browser: httpx2.Client, subscriber: Subscriber
) -> None:
    changes = {"title": "Tea", "colour": "#0f5c6e"}
    data(client.patch(f"/lists/{subscriber.list_id}", json=changes))
    token = receive_token(browser, subscriber)
    [mail_html] = [
        each["html"] for each in stack.mails(to=subscriber.email) if token in each["html"]
    ]
    assert "border-bottom:2px solid #0f5c6e" in mail_html
    assert "<bdi>Tea</bdi>" in mail_html
    [button] = re.findall(r"<a [^>]*>Open my subscriptions</a>", mail_html)
    assert token in button
    assert "background:#0f5c6e" in button


def test_forged_or_revoked_trace_id_cannot_request_a_preferences_link(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client, subscriber: Subscriber
) -> None:
    reply = stranger.post("/preferences/ask", params={"trace_id": f"{subscriber.trace_id}A"})
    assert read_heading(reply, 403) == "This link doesn’t work"
    data(client.delete(f"/lists/{subscriber.list_id}/traces"))
    assert read_heading(request_link(stranger, subscriber), 403) == "This link doesn’t work"
    page = stranger.get("/unsubscribe", params={"trace_id": subscriber.trace_id})
    assert "preferences/ask" not in page.text
    assert stack.query("SELECT id FROM account_mails WHERE email = %s", subscriber.email) == []


def test_trace_id_does_not_open_preferences_or_other_lists(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client, subscriber: Subscriber
) -> None:
    other_list_id = new_list(client, "Another letter")
    put_member(client, other_list_id, subscriber.email)
    query = {"trace_id": subscriber.trace_id}
    for path in ("", "/data", "/data.json", "/erase", f"/answers?list={subscriber.list_id}"):
        reply = stranger.get(f"/preferences{path}", params={**query, "list": subscriber.list_id})
        assert read_heading(reply, 403) == "Your session has ended"
    for path in ("", "/erase", "/answers"):
        fields = {"list": str(other_list_id), "action": "leave"}
        if path == "":
            fields = {"was": f"+{other_list_id}.member"}
        params = {**query, "list": str(other_list_id)}
        reply = stranger.post(f"/preferences{path}", params=params, data=fields)
        assert read_heading(reply, 403) == "Your session has ended"
    link_reply = open_link(stranger, subscriber.trace_id, {}, Origin=stack.api_url)
    assert read_heading(link_reply, 403) == "This link doesn’t work"
    page = stranger.get("/unsubscribe", params=query)
    assert "Another letter" not in page.text
    assert require_member(client, other_list_id, subscriber.email)["status"] == "active"


def test_preferences_link_is_usable_only_once_and_opening_its_page_changes_nothing(
    stack: Stack, browser: httpx2.Client, stranger: httpx2.Client, subscriber: Subscriber
) -> None:
    token = receive_token(stranger, subscriber)
    for _ in range(2):
        link_page = stranger.get("/preferences/open", params={"token": token})
        assert "Open my subscriptions" in link_page.text
        # The page sets only the cookie that ties the form to the browser, but no session cookie.
        assert re.findall(r"(\w+)=", link_page.headers["set-cookie"])[0].endswith("_form")
    session_reply = open_link(browser, token, {}, Origin=stack.api_url)
    assert session_reply.status_code == 303
    cookie_header = session_reply.headers["set-cookie"].lower()
    assert "httponly" in cookie_header
    assert "samesite=lax" in cookie_header
    for reply in (
        stranger.get("/preferences/open", params={"token": token}),
        open_link(stranger, token, {}, Origin=stack.api_url),
    ):
        assert read_heading(reply, 403) == "This link has already been used"
    # The mailed token isn't valid as a session cookie.
    cookie_name = session_reply.headers["set-cookie"].partition("=")[0]
    reply_to_forged_cookie = stranger.get(
        "/preferences", headers={"Cookie": f"{cookie_name}={token}"}
    )
    assert read_heading(reply_to_forged_cookie, 403) == "Your session has ended"


def test_form_from_another_site_cannot_start_a_preferences_session(
    browser: httpx2.Client, stranger: httpx2.Client, subscriber: Subscriber
) -> None:
    # The attacker has a preferences link, and a CSRF token for the attacker's own browser.
    token = receive_token(stranger, subscriber)
    foreign_csrf_token = read_csrf(stranger.get("/preferences/open", params={"token": token}))
    assert browser.get("/preferences/open", params={"token": token}).status_code == 200
    for fields in ({}, {"csrf_token": foreign_csrf_token}):
        reply = open_link(browser, token, fields, Origin="https://www.example.com")
        assert read_heading(reply, 403) == "We couldn’t verify your request"
        assert "set-cookie" not in reply.headers
    link_page = browser.get("/preferences/open", params={"token": token})
    assert open_link(browser, token, {"csrf_token": read_csrf(link_page)}).status_code == 303


def test_preferences_link_and_session_expire_after_one_hour(
    stack: Stack, browser: httpx2.Client, subscriber: Subscriber
) -> None:
    open_preferences(browser, subscriber)
    token = receive_token(browser, subscriber)
    stack.query(
        "UPDATE mailed_links SET expires_at = now() WHERE user_id = %s RETURNING id",
        subscriber.user_id,
    )
    assert read_heading(browser.get("/preferences"), 403) == "Your session has ended"
    reply = open_link(browser, token, {}, Origin=stack.api_url)
    assert read_heading(reply, 403) == "This link doesn’t work"
    find_longer_links = (
        "SELECT 1 FROM mailed_links WHERE user_id = %s AND expires_at > created_at + '1 hour'"
    )
    assert stack.query(find_longer_links, subscriber.user_id) == []


def test_address_change_revokes_preferences_links_and_sessions(
    stack: Stack,
    logged_in_visitor: Visitor,
    email: str,
    browser: httpx2.Client,
    client: httpx2.Client,
) -> None:
    list_id = new_list(client)
    new_email = new_address()
    join(logged_in_visitor, list_id)
    user_id = user_id_of(stack, email)
    former_subscriber = Subscriber(stack, list_id, user_id, email)
    open_preferences(browser, former_subscriber)
    token = receive_token(browser, former_subscriber)
    move(logged_in_visitor, new_email)
    assert read_heading(browser.get("/preferences"), 403) == "Your session has ended"
    for reply in (
        browser.get("/preferences/open", params={"token": token}),
        open_link(browser, token, {}, Origin=stack.api_url),
    ):
        assert read_heading(reply, 403) == "This link doesn’t work"
    # Pressroom mails a new link to the new address. The preferences page shows the old address,
    # because the list still has the old address.
    page = open_preferences(browser, Subscriber(stack, list_id, user_id, new_email))
    shown_email = f'<b class="address"><bdi>{email}</bdi></b>'
    assert f"Your address on these lists is {shown_email}." in read_text(page)
    assert new_email not in read_text(page)


def test_reader_can_end_the_preferences_session(
    browser: httpx2.Client, subscriber: Subscriber
) -> None:
    page = open_preferences(browser, subscriber)
    cookies_before = dict(browser.cookies)
    end_reply = browser.post("/preferences/end", data={"csrf_token": read_csrf(page)})
    assert "max-age=0" in end_reply.headers["set-cookie"].lower()
    browser.cookies.update(cookies_before)
    assert read_heading(browser.get("/preferences"), 403) == "Your session has ended"


def test_preferences_of_one_list_have_its_colour_and_of_several_lists_the_default_colour(
    client: httpx2.Client, browser: httpx2.Client, subscriber: Subscriber
) -> None:
    accent = "--accent: #0f5c6e;"
    data(client.patch(f"/lists/{subscriber.list_id}", json={"colour": "#0f5c6e"}))
    requested_page = follow_redirect(browser, request_link(browser, subscriber))
    token = receive_token(browser, subscriber)
    link_page = browser.get("/preferences/open", params={"token": token})
    open_preferences(browser, subscriber)
    paths = ("/preferences", "/preferences/data", "/preferences/erase")
    answers_page = browser.get(f"/preferences/answers?list={subscriber.list_id}")
    for page in (requested_page, link_page, answers_page, *map(browser.get, paths)):
        assert accent in page.text
        # Pages for the readers of a list have no header, and name Pressroom only in the footer.
        assert "<header>" not in page.text
    put_member(client, new_list(client, "Another letter", colour="#6b21a8"), subscriber.email)
    for page in map(browser.get, paths):
        assert page.status_code == 200
        assert accent not in page.text
        assert "#6b21a8" not in page.text


def test_preferences_form_without_valid_csrf_token_changes_nothing(
    browser: httpx2.Client, subscriber: Subscriber
) -> None:
    open_preferences(browser, subscriber)
    rows_before = subscriber.list_rows()
    fields = {"list": str(subscriber.list_id), "action": "leave"}
    for token_field in ({}, {"csrf_token": "x" * 43}):
        for path in ("", "/erase", "/end", f"/answers?list={subscriber.list_id}"):
            reply = browser.post(f"/preferences{path}", data={**fields, **token_field})
            assert reply.status_code == 403
    assert subscriber.list_rows() == rows_before
    assert read_heading(browser.get("/preferences")) == "Your subscriptions"


def test_preferences_show_and_change_only_lists_of_one_owner(
    stack: Stack, client: httpx2.Client, browser: httpx2.Client, subscriber: Subscriber
) -> None:
    second_list_id = new_list(client, "The Evening <Letter>")
    put_member(client, second_list_id, subscriber.email)
    with stack.client(stack.create_owner().key) as other_owner:
        foreign_list_id = new_list(other_owner, "Of somebody else")
        put_member(other_owner, foreign_list_id, subscriber.email)
        page = open_preferences(browser, subscriber)
        assert html.escape("The Evening <Letter>") in page.text
        assert "Of somebody else" not in page.text
        for action, standing in (
            ("stop_mail", ("active", False)),
            ("resume_mail", ("active", True)),
            ("leave", ("unsubscribed", True)),
            ("undo", ("active", True)),
        ):
            assert submit_action(browser, page, second_list_id, action).status_code == 303
            member = require_member(client, second_list_id, subscriber.email)
            assert (member["status"], member["email_enabled"]) == standing
        unrelated_list_id = new_list(client)
        for list_id in (foreign_list_id, unrelated_list_id):
            for action in ("leave", "undo", "resume_mail"):
                assert read_heading(submit_action(browser, page, list_id, action), 404)
        assert require_member(other_owner, foreign_list_id, subscriber.email)["status"] == "active"
    for action in ("", "erase"):
        assert read_heading(submit_action(browser, page, subscriber.list_id, action), 422)
    assert subscriber.read_status() == ("active", True)


def test_reader_can_change_only_their_name_and_public_fields(
    client: httpx2.Client, browser: httpx2.Client, subscriber: Subscriber
) -> None:
    for key, kind in (("city", "text"), ("visits", "number"), ("news", "boolean")):
        new_field(client, key, kind, public=True)
    new_field(client, "note")
    put_member(
        client, subscriber.list_id, subscriber.email, name="A", fields={"note": "kept", "visits": 1}
    )
    page = open_preferences(browser, subscriber)
    prefix = f"{subscriber.list_id}."
    assert f'name="{prefix}name"' in page.text
    assert 'value="A"' in page.text
    assert f"{prefix}fields.note" not in page.text
    answers = {"fields.city": "Rome", "fields.visits": "many", "name": "Ada"}
    invalid_reply = save(browser, page, {prefix + name: value for name, value in answers.items()})
    assert read_heading(invalid_reply, 422) == "Your subscriptions"
    assert f'id="{prefix}fields.visits-problem"' in invalid_reply.text
    assert 'value="Rome"' in invalid_reply.text
    corrections = {f"{prefix}fields.visits": ""}
    assert save(browser, invalid_reply, corrections).status_code == 303
    member = require_member(client, subscriber.list_id, subscriber.email)
    assert member["name"] == "Ada"
    assert member["fields"] == {"city": "Rome", "note": "kept"}
    long_name_reply = save(browser, page, {f"{prefix}name": "x" * 201})
    assert read_heading(long_name_reply, 422) == "Your subscriptions"
    assert f'id="{prefix}name-problem"' in long_name_reply.text
    private_field_reply = save(browser, page, {f"{prefix}fields.note": "x"})
    assert PARTLY_SAVED in follow_redirect(browser, private_field_reply).text
    assert require_member(client, subscriber.list_id, subscriber.email)["fields"]["note"] == "kept"


def test_answer_to_a_field_that_left_the_page_is_refused_with_a_message_and_the_rest_is_saved(
    client: httpx2.Client, browser: httpx2.Client, subscriber: Subscriber
) -> None:
    fields = {key: new_field(client, key, public=True) for key in ("city", "shoe", "pet")}
    prefix = f"{subscriber.list_id}."
    page = open_preferences(browser, subscriber)
    data(client.delete(f"/fields/{fields['shoe']['id']}"))
    data(client.patch(f"/fields/{fields['pet']['id']}", json={"public": False}))
    answers = {"name": "Ada", "fields.city": "Rome", "fields.shoe": "42", "fields.pet": "cat"}
    reply = save(browser, page, {prefix + name: value for name, value in answers.items()})
    assert PARTLY_SAVED in follow_redirect(browser, reply).text
    member = require_member(client, subscriber.list_id, subscriber.email)
    assert (member["name"], member["fields"]) == ("Ada", {"city": "Rome"})


def test_form_of_the_former_release_still_saves_answers(
    client: httpx2.Client, browser: httpx2.Client, subscriber: Subscriber
) -> None:
    new_field(client, "news", "boolean", public=True)
    page = open_preferences(browser, subscriber)
    answers = {"csrf_token": read_csrf(page), "name": "Ada", "fields.news": "no"}
    path = f"/preferences/answers?list={subscriber.list_id}"
    assert browser.post(path, data=answers).status_code == 303
    member = require_member(client, subscriber.list_id, subscriber.email)
    assert (member["name"], member["fields"]) == ("Ada", {"news": False})


def save(
    browser: httpx2.Client,
    page: httpx2.Response,
    typed: Mapping[str, str] = MappingProxyType({}),
    off: Collection[str] = (),
) -> httpx2.Response:
    """Submit the choices on the page. ``off``: the names of the switches that the reader clears."""
    [values] = [values for action, values in forms_of(page) if action == "/preferences"]
    assert values.keys() >= set(off)
    remaining = {name: value for name, value in values.items() if name not in off}
    return browser.post("/preferences", data={**remaining, **typed})


def test_one_save_changes_subscriptions_mail_and_answers(
    client: httpx2.Client, browser: httpx2.Client, subscriber: Subscriber
) -> None:
    new_field(client, "news", "boolean", public=True)
    new_field(client, "sports", "boolean", public=True)
    titles = ("Tea", "Coffee", "Cake")
    tea_id, coffee_id, cake_id = (new_list(client, title) for title in titles)
    for list_id in (tea_id, coffee_id, cake_id):
        put_member(client, list_id, subscriber.email, fields={"sports": True})
    page = open_preferences(browser, subscriber)
    submit_action(browser, page, cake_id, "leave")
    page = browser.get("/preferences")
    typed = {
        f"{cake_id}.member": "on",
        f"{coffee_id}.name": "Ada",
        f"{coffee_id}.fields.news": "yes",
    }
    switched_off = [f"{tea_id}.member", f"{coffee_id}.mail", f"{coffee_id}.fields.sports"]
    reply = save(browser, page, typed, switched_off)
    assert "Your changes were saved." in read_text(follow_redirect(browser, reply))
    members = {
        list_id: require_member(client, list_id, subscriber.email)
        for list_id in (subscriber.list_id, tea_id, coffee_id, cake_id)
    }
    standings = [(each["status"], each["email_enabled"]) for each in members.values()]
    assert standings == [
        ("active", True),
        ("unsubscribed", True),
        ("active", False),
        ("active", True),
    ]
    assert members[coffee_id]["name"] == "Ada"
    assert members[coffee_id]["fields"] == {"news": True, "sports": False}
    # A checkbox that nobody touched gives no answer.
    assert members[subscriber.list_id]["fields"] == {}
    assert members[cake_id]["fields"] == {"sports": True}


def test_save_without_changes_adds_nothing_to_the_history(
    client: httpx2.Client, browser: httpx2.Client, subscriber: Subscriber
) -> None:
    new_field(client, "news", "boolean", public=True)
    page = open_preferences(browser, subscriber)
    rows_before = subscriber.list_rows()
    assert save(browser, page).status_code == 303
    assert subscriber.list_rows() == rows_before


def test_save_of_an_old_page_keeps_later_answers(
    client: httpx2.Client, browser: httpx2.Client, subscriber: Subscriber
) -> None:
    new_field(client, "city", "text", public=True)
    new_field(client, "news", "boolean", public=True)
    path = f"/lists/{subscriber.list_id}/members/{subscriber.email}"
    data(client.patch(path, json={"name": "Ada", "fields": {"city": "Rome", "news": True}}))
    page = open_preferences(browser, subscriber)
    later = {"name": "Grace", "fields": {"city": "Bern", "news": False}}
    data(client.patch(path, json=later))
    assert save(browser, page, {}, [f"{subscriber.list_id}.mail"]).status_code == 303
    member = require_member(client, subscriber.list_id, subscriber.email)
    assert {"name": member["name"], "fields": member["fields"]} == later
    assert member["email_enabled"] is False


def test_error_of_one_list_prevents_no_opt_out_from_another_list(
    stack: Stack, browser: httpx2.Client, subscriber: Subscriber
) -> None:
    with stack.client(stack.create_owner().key) as other_owner:
        foreign_list_id = new_list(other_owner, "Of somebody else")
    page = open_preferences(browser, subscriber)
    was = f"+{foreign_list_id}.member +{subscriber.list_id}.member"
    form = {"csrf_token": read_csrf(page), "was": was}
    assert browser.post("/preferences", data=form).status_code == 404
    assert subscriber.read_status() == ("unsubscribed", True)


def test_save_of_an_old_page_does_not_lift_a_later_opt_out(
    browser: httpx2.Client, stranger: httpx2.Client, subscriber: Subscriber
) -> None:
    page = open_preferences(browser, subscriber)
    stranger.post(subscriber.unsubscribe_url, data={"action": "leave"})
    reply = save(browser, page, {f"{subscriber.list_id}.name": "Ada"})
    assert subscriber.read_status() == ("unsubscribed", True)
    assert "Your changes were saved." not in read_text(follow_redirect(browser, reply))
    assert save(browser, page, {}, [f"{subscriber.list_id}.member"]).status_code == 303
    assert subscriber.read_status() == ("unsubscribed", True)


def test_reader_leaves_all_lists_of_the_owner_at_once(
    stack: Stack, client: httpx2.Client, browser: httpx2.Client, subscriber: Subscriber
) -> None:
    second_list_id = new_list(client, "Tea", confirm_required=True)
    data(client.patch(f"/lists/{subscriber.list_id}", json={"title": "Coffee"}))
    stranger_reply = browser.post(
        f"/subscriptions/{second_list_id}", json={"email": subscriber.email}
    )
    assert data(stranger_reply) == 1
    with stack.client(stack.create_owner().key) as other_owner:
        foreign_list_id = new_list(other_owner, "Of somebody else")
        put_member(other_owner, foreign_list_id, subscriber.email)
        page = open_preferences(browser, subscriber)
        assert "Unsubscribe from everything" in page.text
        reply = browser.post(
            "/preferences", data={"csrf_token": read_csrf(page), "action": "leave_all"}
        )
        page = follow_redirect(browser, reply)
        assert require_member(other_owner, foreign_list_id, subscriber.email)["status"] == "active"
    assert subscriber.read_status() == ("unsubscribed", True)
    assert require_member(client, second_list_id, subscriber.email)["status"] == "unsubscribed"
    assert "Unsubscribe from everything" not in page.text
    # The switches on the same page undo this.
    assert save(browser, page, {f"{subscriber.list_id}.member": "on"}).status_code == 303
    assert subscriber.read_status() == ("active", True)


def test_refused_answer_does_not_prevent_leaving_and_keeps_the_choices(
    client: httpx2.Client, browser: httpx2.Client, subscriber: Subscriber
) -> None:
    new_field(client, "visits", "number", public=True)
    new_field(client, "news", "boolean", public=True)
    second_list_id = new_list(client, "Tea")
    put_member(client, second_list_id, subscriber.email)
    page = open_preferences(browser, subscriber)
    first, second = f"{subscriber.list_id}.", f"{second_list_id}."
    typed = {f"{second}fields.visits": "many", f"{second}fields.news": "yes"}
    reply = save(browser, page, typed, [f"{first}member", f"{second}mail"])
    assert reply.status_code == 422
    assert subscriber.read_status() == ("unsubscribed", True)
    member = require_member(client, second_list_id, subscriber.email)
    assert (member["status"], member["email_enabled"], member["fields"]) == ("active", False, {})
    [values] = [values for action, values in forms_of(reply) if action == "/preferences"]
    assert values[f"{second}fields.news"] == "yes"
    assert f"-{second}fields.news" in values["was"].split()
    assert f"{first}member" not in values
    assert f"{second}mail" not in values
    assert save(browser, reply, {f"{second}fields.visits": "3"}).status_code == 303
    member = require_member(client, second_list_id, subscriber.email)
    assert member["fields"] == {"visits": 3, "news": True}


def test_reader_of_many_lists_with_many_fields_can_change_each_of_them(
    client: httpx2.Client, browser: httpx2.Client, subscriber: Subscriber
) -> None:
    for number in range(MAX_FIELDS):
        new_field(client, f"field_{number}", "boolean", public=True)
    list_ids = [new_list(client, f"Letter {number:02}") for number in range(25)]
    for list_id in list_ids:
        put_member(client, list_id, subscriber.email)
    page = open_preferences(browser, subscriber)
    last_id = list_ids[-1]
    for name, is_shown in (("member", False), ("name", False)):
        assert (f'name="{last_id}.{name}"' in page.text) == is_shown
        assert f'name="{subscriber.list_id}.{name}"' in page.text
    assert f'/preferences?list={last_id}"' in page.text
    page = browser.get(f"/preferences?list={last_id}")
    assert len(page.content) < 100_000
    answers = {f"{last_id}.fields.field_{number}": "yes" for number in range(MAX_FIELDS)}
    reply = save(browser, page, {f"{last_id}.name": "Ada", **answers}, [f"{last_id}.mail"])
    assert reply.status_code == 303
    member = require_member(client, last_id, subscriber.email)
    assert (member["name"], member["email_enabled"]) == ("Ada", False)
    assert list(member["fields"].values()) == [True] * MAX_FIELDS


def test_reader_sees_and_downloads_all_personal_data_of_one_owner(
    stack: Stack, client: httpx2.Client, browser: httpx2.Client, subscriber: Subscriber
) -> None:
    new_field(client, "note", label="Height & more")
    body = {"name": "Ada", "fields": {"note": "tall <b>"}, "tags": ["VIP"]}
    put_member(client, subscriber.list_id, subscriber.email, **body)
    with stack.client(stack.create_owner().key) as other_owner:
        put_member(
            other_owner, new_list(other_owner, "Of somebody else"), subscriber.email, name="Secret"
        )
    open_preferences(browser, subscriber)
    page = browser.get("/preferences/data")
    assert read_heading(page) == "Your data"
    # Remove the ``<wbr>`` elements, which allow line breaks within the e-mail address.
    page_text = page.text.replace("<wbr>", "")
    for text in ("Ada", "Height &amp; more", html.escape("tall <b>"), "VIP", subscriber.email):
        assert text in page_text
    assert re.search(r"<bdi>\d{1,2} [A-Z][a-z]{2,3} \d{4}, \d{2}:\d{2}</bdi>", page_text)
    reply = browser.get("/preferences/data.json")
    require_headers(reply)
    assert reply.headers["content-type"] == "application/json"
    assert reply.headers["content-disposition"].startswith("attachment;")
    downloaded_data = reply.json()
    assert downloaded_data["email"] == subscriber.email
    [list_data] = downloaded_data["lists"]
    assert (list_data["name"], list_data["fields"], list_data["tags"]) == (
        "Ada",
        {"note": "tall <b>"},
        ["VIP"],
    )
    assert [each["action"] for each in list_data["history"]][-1] == "requested"
    assert list_data["consent"][-1]["how"] == "form"
    assert "Secret" not in page.text + reply.text
    # The data about the person also contains bounces, and the person's reports of unwanted lists.
    bounce_hard(stack, build_mailing(subscriber.list_id, subscriber.user_id))
    browser.post("/report", params={"trace_id": subscriber.trace_id})
    downloaded_data = browser.get("/preferences/data.json").json()
    assert [(each["is_hard"], each["status"]) for each in downloaded_data["bounces"]] == [
        (True, "5.1.1")
    ]
    assert "because your address returned an e-mail" in browser.get("/preferences/data").text
    assert [each["kind"] for each in downloaded_data["opt_outs"]] == ["list"]
    assert len(downloaded_data["reports"]) == 1


@pytest.mark.parametrize(
    ("language", "shown"),
    [
        ("en", ["Source: instagram, Campaign: fair", "German"]),
        ("de", ["Herkunft: instagram, Kampagne: fair", "Deutsch"]),
    ],
)
def test_own_data_names_the_origin_and_the_language(
    stack: Stack,
    client: httpx2.Client,
    browser: httpx2.Client,
    language: str,
    shown: list[str],
) -> None:
    list_id = new_list(client)
    email = new_address()
    sign_up = {"email": email, "utm_source": "instagram", "utm_campaign": "fair"}
    headers = {"Accept-Language": "de"}
    data(browser.post(f"/subscriptions/{list_id}", json=sign_up, headers=headers))
    user_id = require_member(client, list_id, email)["user_id"]
    open_preferences(browser, Subscriber(stack, list_id, user_id, email))
    page = browser.get("/preferences/data", headers={"Accept-Language": language})
    for text in shown:
        assert f"<bdi>{text}</bdi>" in page.text


@pytest.mark.parametrize(
    ("language", "shown"),
    [
        ("en", "Unsubscribed, because your address returned an e-mail"),
        ("de", "Abgemeldet, weil eine E-Mail an Ihre Adresse zurückkam"),
    ],
)
def test_own_data_tells_an_imported_bounce_from_turned_off_mail(
    client: httpx2.Client,
    browser: httpx2.Client,
    subscriber: Subscriber,
    language: str,
    shown: str,
) -> None:
    file = build_address_file(subscriber.email)
    import_members_file(client, subscriber.list_id, file, kind="bounces")
    open_preferences(browser, subscriber)
    page = browser.get("/preferences/data", headers={"Accept-Language": language}).text
    assert f"<bdi>{shown}</bdi>" in page
    # The source of the opt-out is translated too.
    assert "<bdi>bounce</bdi>" not in page


def test_downloaded_data_contains_reported_opt_outs_of_the_address(
    stack: Stack, client: httpx2.Client, browser: httpx2.Client, subscriber: Subscriber
) -> None:
    sender = new_sender(client, list_ids=[new_list(client, title) for title in ("Tea", "Coffee")])
    deliver(stack, client, sender, report("complained", email=subscriber.email))
    open_preferences(browser, subscriber)
    opt_outs = browser.get("/preferences/data.json").json()["opt_outs"]
    assert [(each["kind"], each["source"]) for each in opt_outs] == [
        ("list", "sender-complaint")
    ] * 2
    assert {each["list"] for each in opt_outs} == {"Tea", "Coffee"}


def test_reader_downloads_the_reports_of_senders_about_their_mail(
    stack: Stack, client: httpx2.Client, browser: httpx2.Client, subscriber: Subscriber
) -> None:
    with stack.client(stack.create_owner().key) as other_owner:
        foreign_list_id = new_list(other_owner, "Of somebody else")
        put_member(other_owner, foreign_list_id, subscriber.email)
        for owner, list_id in ((client, subscriber.list_id), (other_owner, foreign_list_id)):
            delivery_id = delivery_for(stack, int(list_id), subscriber.user_id)
            deliver(stack, owner, new_sender(owner), report("delivered", delivery_id=delivery_id))
    open_preferences(browser, subscriber)
    [sender_report] = browser.get("/preferences/data.json").json()["sender_reports"]
    assert (sender_report["kind"], sender_report["outcome"]) == ("delivered", "applied")
    assert sender_report["list"] != "Of somebody else"


def test_reader_is_erased_after_confirmation_in_the_preferences(
    stack: Stack, browser: httpx2.Client, subscriber: Subscriber
) -> None:
    open_preferences(browser, subscriber)
    page = browser.get("/preferences/erase")
    assert read_heading(page) == "Delete my data"
    assert subscriber.read_status() == ("active", True)
    erasure_reply = browser.post("/preferences/erase", data={"csrf_token": read_csrf(page)})
    # The response deletes the session cookie.
    assert "max-age=0" in erasure_reply.headers.pop("set-cookie").lower()
    assert read_heading(erasure_reply) == "Your data is being deleted"
    assert read_heading(browser.get("/preferences"), 403) == "Your session has ended"

    select_email = "SELECT email FROM users WHERE id = %s"
    erased_row = [(f"erased-{subscriber.user_id}@erased.invalid",)]
    eventually(
        lambda: stack.query(select_email, subscriber.user_id) == erased_row, what="the erasure"
    )


def test_preferences_link_cannot_erase_a_person_with_an_account(
    stack: Stack, client: httpx2.Client, browser: httpx2.Client
) -> None:
    list_id = new_list(client)
    person = stack.create_owner()
    put_member(client, list_id, person.email)
    stack.query("UPDATE users SET password_hash = 'x' WHERE id = %s RETURNING id", person.user_id)
    reader = Subscriber(stack, list_id, person.user_id, person.email)
    page = open_preferences(browser, reader)
    erasure_page = browser.get("/preferences/erase")
    assert "belongs to an account" in erasure_page.text
    assert "<button" not in erasure_page.text
    reply = browser.post("/preferences/erase", data={"csrf_token": read_csrf(page)})
    assert reply.status_code == 403
    assert reader.read_status() == ("active", True)


def test_erasure_page_warns_readers_who_are_on_lists_of_other_owners(
    stack: Stack, browser: httpx2.Client, subscriber: Subscriber
) -> None:
    open_preferences(browser, subscriber)
    warning = "You are also on lists of other owners"
    assert warning not in browser.get("/preferences/erase").text
    with stack.client(stack.create_owner().key) as other_owner:
        put_member(other_owner, new_list(other_owner), subscriber.email)
    assert warning in browser.get("/preferences/erase").text


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
    for body, stored_reason in bodies:
        reader = subscribe(stack, list_id)
        reply = stranger.post("/unsubscribe", params={"trace_id": reader.trace_id}, **body)
        assert reply.status_code == 303
        history_path = f"/lists/{list_id}/members/{reader.user_id}/history"
        newest_entry = data(client.get(history_path))["items"][0]
        assert (newest_entry["action"], newest_entry["reason"]) == ("unsubscribed", stored_reason)
