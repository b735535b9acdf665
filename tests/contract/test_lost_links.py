"""Tests of the form for a new preferences link, which readers see when they have no valid link."""

import html
import re
from urllib.parse import urljoin

import httpx2
import pytest

from devstack.harness.polling import eventually
from devstack.harness.stack import Stack
from tests.support.http.pages import follow_redirect, read_heading
from tests.support.http.replies import data
from tests.support.lists.people_on_lists import Subscriber, new_list
from tests.support.lists.preferences import mailed_tokens, open_link, open_preferences
from tests.support.lists.segments import put_member
from tests.support.people.visiting import new_address, read_hidden_fields


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/s/no-such-list", 404),
        ("/unsubscribe?trace_id=x", 403),
        ("/unsubscribe", 400),
        ("/preferences", 403),
        ("/preferences/open?token=x", 403),
        ("/preferences/ask", 200),
    ],
)
def test_page_without_a_valid_link_mails_a_new_one(
    client: httpx2.Client,
    stranger: httpx2.Client,
    subscriber: Subscriber,
    path: str,
    status: int,
) -> None:
    page = stranger.get(path)
    read_heading(page, status)
    [action] = re.findall(r'<form method="post"(?: action="([^"]*)")?>', page.text)
    form_url = urljoin(str(page.url), html.unescape(action))
    reply = stranger.post(form_url, data={"email": f" {subscriber.email.upper()}"})
    assert reply.status_code == 303
    assert read_heading(follow_redirect(stranger, reply)) == "Check your e-mail"
    [token] = eventually(lambda: mailed_tokens(subscriber), what="the link")
    link_page = stranger.get("/preferences/open", params={"token": token})
    fields = {"csrf_token": read_hidden_fields(link_page)["csrf_token"]}
    preferences = follow_redirect(stranger, open_link(stranger, token, fields))
    title = data(client.get(f"/lists/{subscriber.list_id}"))["title"]
    assert f"<bdi>{title}</bdi>" in preferences.text


def test_mail_without_a_list_has_a_link_for_each_owner(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client, subscriber: Subscriber
) -> None:
    title = data(client.get(f"/lists/{subscriber.list_id}"))["title"]
    put_member(client, new_list(client, "The Evening Letter"), subscriber.email)
    with stack.client(stack.create_owner().key) as other_owner:
        put_member(other_owner, new_list(other_owner, "Harbour Walks"), subscriber.email)
    unknown_email = new_address()
    for email in (unknown_email, subscriber.email):
        assert stranger.post("/preferences/ask", data={"email": email}).status_code == 303
    tokens = eventually(lambda: mailed_tokens(subscriber), what="the links")
    assert len(tokens) == 2
    [mail] = [each for each in stack.mails(to=subscriber.email) if tokens[0] in each["text"]]
    for content in (mail["text"], mail["html"]):
        parts = re.split(r"token=[\w-]+", html.unescape(content))
        assert "Harbour Walks" in parts[0]
        assert f"“The Evening Letter”, “{title}”" in content
        assert "Harbour Walks" not in parts[1]
    for token, headings in zip(
        tokens, (["Harbour Walks"], [title, "The Evening Letter"]), strict=True
    ):
        page = stranger.get("/preferences/open", params={"token": token})
        count = "your subscription" if len(headings) == 1 else "your 2 subscriptions"
        assert count in page.text
        assert subscriber.email in page.text.replace("<wbr>", "")
    assert stack.mails(to=unknown_email) == []


def test_link_request_without_a_list_rejects_malformed_addresses(stranger: httpx2.Client) -> None:
    reply = stranger.post("/preferences/ask", data={"email": "nobody"})
    assert read_heading(reply, 422) == "Manage your subscription"
    assert 'id="email-problem"' in reply.text


def test_own_data_shows_the_facts_that_all_lists_share_only_once(
    client: httpx2.Client, stranger: httpx2.Client, subscriber: Subscriber
) -> None:
    put_member(client, new_list(client, "The Evening Letter"), subscriber.email)
    open_preferences(stranger, subscriber)
    page = stranger.get("/preferences/data").text
    assert page.count("<dt>E-mail address</dt>") == 1
    assert page.count("<dt>Joined on</dt>") == 2
    assert page.count("<details>") == 2
    assert page.index("data.json") < page.index("<details>")
