"""Readers' pages and mails speak their language; owners' and operators' pages are English."""

import html
import re
from typing import Any

import httpx2
import pytest

from devstack.harness.polling import eventually
from devstack.harness.stack import Stack
from tests.support.http.pages import BROWSER_HEADERS, follow_redirect
from tests.support.http.replies import data
from tests.support.lists.people_on_lists import Subscriber
from tests.support.lists.preferences import open_preferences
from tests.support.lists.subscribers import new_address, new_list

GERMAN = {"Accept-Language": "de-AT,de;q=0.9,en;q=0.5"}
ENGLISH = {"Accept-Language": "en"}


def german(reply: httpx2.Response) -> str:
    """The heading of a page in German."""
    assert '<html lang="de">' in reply.text
    assert reply.headers["content-language"] == "de"
    [found] = re.findall(r"<h1>(?:<bdi>)?(.*?)(?:</bdi>)?</h1>", reply.text)
    return html.unescape(found)


def test_reader_pages_are_german_for_german_browsers(
    client: httpx2.Client, stranger: httpx2.Client, subscriber: Subscriber
) -> None:
    mailing_list = data(client.get(f"/lists/{subscriber.list_id}"))
    slug = mailing_list["slug"]
    open_preferences(stranger, subscriber)
    for path, heading in (
        (f"/s/{slug}", mailing_list["title"]),
        (f"/subscribed?list={subscriber.list_id}", "Vielen Dank"),
        (subscriber.unsubscribe_url, "Sie sind angemeldet"),
        (f"/report?trace_id={subscriber.trace_id}", "Diese Liste melden"),
        (f"/preferences/ask?list={slug}", "Ihr Abonnement verwalten"),
        ("/preferences/ask?sent=yes", "Sehen Sie in Ihrem Postfach nach"),
        ("/preferences", "Ihre Abonnements"),
        ("/preferences/data", "Ihre Daten"),
    ):
        assert german(stranger.get(path, headers=GERMAN)) == heading


@pytest.mark.parametrize("headers", [GERMAN, {}])
def test_lines_of_reader_pages_never_end_within_the_word_e_mail(
    stranger: httpx2.Client, subscriber: Subscriber, headers: dict[str, str]
) -> None:
    page = stranger.get(f"/subscribed?list={subscriber.list_id}", headers=headers).text
    text = re.sub(r"<[^>]*>", "", page.partition("<body>")[2]).lower()
    assert "e\N{NON-BREAKING HYPHEN}mail" in text
    assert "e-mail" not in text


def test_errors_on_reader_pages_are_german_for_german_browsers(
    client: httpx2.Client, stranger: httpx2.Client, subscriber: Subscriber
) -> None:
    slug = data(client.get(f"/lists/{subscriber.list_id}"))["slug"]
    for reply, heading in (
        (stranger.get("/unsubscribe", headers=GERMAN), "Dieser Link ist unvollständig"),
        (stranger.get("/preferences", headers=GERMAN), "Bitte fordern Sie einen neuen Link an"),
        (stranger.put(f"/s/{slug}", headers=GERMAN), "Das ging nicht"),
        (stranger.get("/s/no-such-list", headers=GERMAN), "Liste nicht gefunden"),
        (stranger.post(f"/s/{slug}", data={}, headers=GERMAN), "Noch nicht angemeldet"),
        (
            stranger.post(f"/subscriptions/{subscriber.list_id}", data={"x": "y"}, headers=GERMAN),
            "Noch nicht angemeldet",
        ),
    ):
        assert german(reply) == heading
    one_click = stranger.post(
        subscriber.unsubscribe_url, data={"List-Unsubscribe": "One-Click"}, headers=GERMAN
    )
    assert one_click.text == "Sie erhalten keine E-Mails mehr von dieser Liste.\n"


def test_account_pages_and_api_errors_are_always_english(
    client: httpx2.Client, stranger: httpx2.Client, subscriber: Subscriber
) -> None:
    slug = data(client.get(f"/lists/{subscriber.list_id}"))["slug"]
    for path in ("/login", "/register"):
        page = stranger.get(path, headers=GERMAN)
        assert '<html lang="en">' in page.text
    reply = stranger.get("/lists", headers=GERMAN)
    assert reply.json()["detail"].startswith("Send an API key")
    assert stranger.get(f"/s/{slug}", headers=ENGLISH).headers["content-language"] == "en"


def mail_of(stack: Stack, email: str, subject: str) -> dict[str, Any]:
    def arrived() -> list[dict[str, Any]]:
        return [mail for mail in stack.mails(to=email) if mail["subject"] == subject]

    found = eventually(arrived, what=subject)
    return dict(found[0])


def test_mails_use_the_language_in_which_the_reader_subscribed(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client
) -> None:
    made = new_list(client, title="Tee", confirm_required=True)
    email = new_address()
    sent = stranger.post(
        f"/s/{made['slug']}", data={"email": email}, headers={**BROWSER_HEADERS, **GERMAN}
    )
    assert (
        german(stranger.get(sent.headers["location"], headers=GERMAN))
        == "Sehen Sie in Ihrem Postfach nach"
    )
    mail = mail_of(stack, email, "Bestätigen Sie Ihre Anmeldung zu “Tee”")
    assert "Meine Anmeldung bestätigen" in mail["html"]
    assert '<html lang="de">' in mail["html"]
    [link] = re.findall(r"\S+/confirm\?token=\S+", mail["text"])
    # Confirmed in an English browser.
    done = follow_redirect(stranger, stranger.post(link, headers=ENGLISH))
    assert "You’re subscribed" in done.text
    assert "Von jetzt an erhalten Sie" in mail_of(stack, email, "Sie haben “Tee” abonniert")["text"]
    [(language,)] = stack.query("SELECT language FROM subscriptions WHERE email = %s", email)
    assert language == "de"
    asked = stranger.post(
        "/preferences/ask", params={"list": made["slug"]}, data={"email": email}, headers=ENGLISH
    )
    assert asked.status_code == 303
    assert mail_of(stack, email, "Ihre Abonnements verwalten")


def test_preferences_mail_uses_the_browser_language_if_none_is_stored(
    stack: Stack, stranger: httpx2.Client, subscriber: Subscriber
) -> None:
    [(language,)] = stack.query(
        "SELECT language FROM subscriptions WHERE email = %s", subscriber.email
    )
    assert language is None
    stranger.post("/preferences/ask", params={"trace_id": subscriber.trace_id}, headers=GERMAN)
    assert mail_of(stack, subscriber.email, "Ihre Abonnements verwalten")


def test_language_of_a_known_reader_changes_only_after_confirmation(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client
) -> None:
    """A stranger who writes the address of a reader changes nothing of theirs."""
    made = new_list(client, title="Tee")
    email = new_address()
    path = f"/subscriptions/{made['id']}"
    data(stranger.post(path, json={"email": email}, headers=ENGLISH))
    stranger.post(path, data={"email": email}, headers={**BROWSER_HEADERS, **GERMAN})
    spoken = "SELECT language FROM subscriptions WHERE email = %s"
    assert stack.query(spoken, email) == [("en",)]
    user_id = stack.query("SELECT user_id FROM subscriptions WHERE email = %s", email)[0][0]
    data(client.delete(f"{path}/members/{user_id}"))
    stranger.post(path, data={"email": email}, headers={**BROWSER_HEADERS, **GERMAN})
    mail = mail_of(stack, email, "Bestätigen Sie Ihre Anmeldung zu “Tee”")
    assert stack.query(spoken, email) == [("en",)]
    [link] = re.findall(r"\S+/confirm\?token=\S+", mail["text"])
    assert stranger.post(link).status_code == 303
    assert stack.query(spoken, email) == [("de",)]


def test_embedded_form_and_previews_are_available_in_each_language(client: httpx2.Client) -> None:
    made = new_list(client, title="Tee")
    path = f"/lists/{made['id']}"
    asked = {"language": "de"}
    assert "E-Mail-Adresse" in data(client.get(f"{path}/embed", params=asked))["html"]
    for part, text in (
        ("sign_up", "Anmelden"),
        ("thanks", "Vielen Dank"),
        ("confirmation_mail", "Meine Anmeldung bestätigen"),
    ):
        assert text in data(client.get(f"{path}/previews/{part}", params=asked))["html"]
    unknown = data(client.get(f"{path}/embed", params={"language": "xx"}))
    assert "E-mail address" in unknown["html"]
