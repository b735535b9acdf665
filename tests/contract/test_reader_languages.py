"""Tests of the languages: readers' pages and mails are translated, all other pages are English."""

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

GERMAN_HEADERS = {"Accept-Language": "de-AT,de;q=0.9,en;q=0.5"}
ENGLISH_HEADERS = {"Accept-Language": "en"}


def read_german_heading(reply: httpx2.Response) -> str:
    """Check that a page is in German, and return the page's heading."""
    assert '<html lang="de">' in reply.text
    assert reply.headers["content-language"] == "de"
    [heading] = re.findall(r"<h1>(?:<bdi>)?(.*?)(?:</bdi>)?</h1>", reply.text)
    return html.unescape(heading)


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
        assert read_german_heading(stranger.get(path, headers=GERMAN_HEADERS)) == heading


@pytest.mark.parametrize("headers", [GERMAN_HEADERS, {}])
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
        (stranger.get("/unsubscribe", headers=GERMAN_HEADERS), "Dieser Link ist unvollständig"),
        (
            stranger.get("/preferences", headers=GERMAN_HEADERS),
            "Ihre Sitzung ist beendet",
        ),
        (stranger.put(f"/s/{slug}", headers=GERMAN_HEADERS), "Das ging nicht"),
        (
            stranger.get("/s/no-such-list", headers=GERMAN_HEADERS),
            "Diesen Newsletter gibt es hier nicht",
        ),
        (stranger.post(f"/s/{slug}", data={}, headers=GERMAN_HEADERS), "Noch nicht angemeldet"),
        (
            stranger.post(
                f"/subscriptions/{subscriber.list_id}", data={"x": "y"}, headers=GERMAN_HEADERS
            ),
            "Noch nicht angemeldet",
        ),
    ):
        assert read_german_heading(reply) == heading
    one_click = stranger.post(
        subscriber.unsubscribe_url, data={"List-Unsubscribe": "One-Click"}, headers=GERMAN_HEADERS
    )
    assert one_click.text == "Sie erhalten keine E-Mails mehr von dieser Liste.\n"


def test_account_pages_and_api_errors_are_always_english(
    client: httpx2.Client, stranger: httpx2.Client, subscriber: Subscriber
) -> None:
    slug = data(client.get(f"/lists/{subscriber.list_id}"))["slug"]
    for path in ("/login", "/register"):
        page = stranger.get(path, headers=GERMAN_HEADERS)
        assert '<html lang="en">' in page.text
    reply = stranger.get("/lists", headers=GERMAN_HEADERS)
    assert reply.json()["detail"].startswith("Send an API key")
    assert stranger.get(f"/s/{slug}", headers=ENGLISH_HEADERS).headers["content-language"] == "en"


def wait_for_mail(stack: Stack, email: str, subject: str) -> dict[str, Any]:
    def find_mails() -> list[dict[str, Any]]:
        return [mail for mail in stack.mails(to=email) if mail["subject"] == subject]

    mails = eventually(find_mails, what=subject)
    return dict(mails[0])


def test_mails_use_the_language_in_which_the_reader_subscribed(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client
) -> None:
    mailing_list = new_list(client, title="Tee", confirm_required=True)
    email = new_address()
    sign_up_reply = stranger.post(
        f"/s/{mailing_list['slug']}",
        data={"email": email},
        headers={**BROWSER_HEADERS, **GERMAN_HEADERS},
    )
    assert (
        read_german_heading(stranger.get(sign_up_reply.headers["location"], headers=GERMAN_HEADERS))
        == "Sehen Sie in Ihrem Postfach nach"
    )
    mail = wait_for_mail(stack, email, "Bestätigen Sie Ihre Anmeldung zu “Tee”")
    assert "Meine Anmeldung bestätigen" in mail["html"]
    assert '<html lang="de">' in mail["html"]
    [link] = re.findall(r"\S+/confirm\?token=\S+", mail["text"])
    # The reader confirms the subscription in a browser whose language is English.
    confirmed_page = follow_redirect(stranger, stranger.post(link, headers=ENGLISH_HEADERS))
    assert "You’re subscribed" in confirmed_page.text
    assert (
        "Von jetzt an erhalten Sie"
        in wait_for_mail(stack, email, "Sie haben “Tee” abonniert")["text"]
    )
    [(language,)] = stack.query("SELECT language FROM subscriptions WHERE email = %s", email)
    assert language == "de"
    link_reply = stranger.post(
        "/preferences/ask",
        params={"list": mailing_list["slug"]},
        data={"email": email},
        headers=ENGLISH_HEADERS,
    )
    assert link_reply.status_code == 303
    assert wait_for_mail(stack, email, "Ihre Abonnements verwalten")


def test_preferences_mail_uses_the_browser_language_if_none_is_stored(
    stack: Stack, stranger: httpx2.Client, subscriber: Subscriber
) -> None:
    [(language,)] = stack.query(
        "SELECT language FROM subscriptions WHERE email = %s", subscriber.email
    )
    assert language is None
    stranger.post(
        "/preferences/ask", params={"trace_id": subscriber.trace_id}, headers=GERMAN_HEADERS
    )
    assert wait_for_mail(stack, subscriber.email, "Ihre Abonnements verwalten")


def test_language_of_a_known_reader_changes_only_after_confirmation(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client
) -> None:
    """Anyone can enter a reader's address, so only a confirmed sign-up may change the language."""
    mailing_list = new_list(client, title="Tee")
    email = new_address()
    path = f"/subscriptions/{mailing_list['id']}"
    data(stranger.post(path, json={"email": email}, headers=ENGLISH_HEADERS))
    stranger.post(path, data={"email": email}, headers={**BROWSER_HEADERS, **GERMAN_HEADERS})
    select_language = "SELECT language FROM subscriptions WHERE email = %s"
    assert stack.query(select_language, email) == [("en",)]
    user_id = stack.query("SELECT user_id FROM subscriptions WHERE email = %s", email)[0][0]
    data(client.delete(f"{path}/members/{user_id}"))
    stranger.post(path, data={"email": email}, headers={**BROWSER_HEADERS, **GERMAN_HEADERS})
    mail = wait_for_mail(stack, email, "Bestätigen Sie Ihre Anmeldung zu “Tee”")
    assert stack.query(select_language, email) == [("en",)]
    [link] = re.findall(r"\S+/confirm\?token=\S+", mail["text"])
    assert stranger.post(link).status_code == 303
    assert stack.query(select_language, email) == [("de",)]


def test_embedded_form_and_previews_are_available_in_each_language(client: httpx2.Client) -> None:
    mailing_list = new_list(client, title="Tee")
    path = f"/lists/{mailing_list['id']}"
    german_query = {"language": "de"}
    assert "E-Mail-Adresse" in data(client.get(f"{path}/embed", params=german_query))["html"]
    for part, text in (
        ("sign_up", "Anmelden"),
        ("thanks", "Vielen Dank"),
        ("confirmation_mail", "Meine Anmeldung bestätigen"),
    ):
        assert text in data(client.get(f"{path}/previews/{part}", params=german_query))["html"]
    form_in_unknown_language = data(client.get(f"{path}/embed", params={"language": "xx"}))
    assert "E-mail address" in form_in_unknown_language["html"]
