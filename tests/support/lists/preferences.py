"""Helpers that open a reader's preferences page with a mailed link."""

import re

import httpx2

from devstack.harness.polling import eventually
from tests.support.http.pages import follow_redirect, read_heading
from tests.support.lists.people_on_lists import Subscriber
from tests.support.people.visiting import read_hidden_fields

_LINK = re.compile(r"/preferences/open\?token=([\w-]+)")


def request_link(client: httpx2.Client, subscriber: Subscriber) -> httpx2.Response:
    return client.post("/preferences/ask", params={"trace_id": subscriber.trace_id})


def mailed_tokens(subscriber: Subscriber) -> list[str]:
    texts = [mail["text"] for mail in subscriber.stack.mails(to=subscriber.email)]
    return [token for text in texts for token in _LINK.findall(text)]


def receive_token(client: httpx2.Client, subscriber: Subscriber) -> str:
    count = len(mailed_tokens(subscriber))
    assert request_link(client, subscriber).status_code == 303

    def find_new_tokens() -> list[str]:
        tokens = mailed_tokens(subscriber)
        return tokens if len(tokens) > count else []

    tokens = eventually(find_new_tokens, what="the link")
    return str(tokens[0])


def open_link(
    browser: httpx2.Client, token: str, fields: dict[str, str], **headers: str
) -> httpx2.Response:
    params = {"token": token}
    return browser.post("/preferences/open", params=params, data=fields, headers=headers)


def open_preferences(browser: httpx2.Client, subscriber: Subscriber) -> httpx2.Response:
    token = receive_token(browser, subscriber)
    page = browser.get("/preferences/open", params={"token": token})
    reply = open_link(browser, token, {"csrf_token": read_hidden_fields(page)["csrf_token"]})
    assert reply.status_code == 303
    preferences = follow_redirect(browser, reply)
    assert read_heading(preferences) == "Your subscriptions"
    return preferences
