"""Tests of the page after a sign-up, which shows the entered address and can resend the mail."""

import html
import re
from collections.abc import Iterator
from datetime import timedelta
from http.cookies import SimpleCookie
from typing import Any

import httpx2
import pytest

from api.cookies import SIGN_UP_COOKIE
from api.sign_up.sealed_answers import INPUT_LIFETIME, SentAnswers, open_answers, seal_answers
from core import clock
from devstack.harness.stack import Stack
from services.subscriptions.sign_up import MIN_CONFIRMATION_INTERVAL
from tests.support.http.pages import BROWSER_HEADERS, follow_redirect, read_heading, read_text
from tests.support.http.replies import data
from tests.support.lists.segments import new_field
from tests.support.lists.sign_up_forms import WIDGET_FIELDS
from tests.support.lists.subscribers import (
    await_mails,
    confirm,
    new_address,
    new_list,
    require_member,
)
from tests.support.people.visiting import read_hidden_fields

COUNT_MAIL_JOBS = (
    "SELECT count(*) FROM jobs JOIN subscriptions s ON s.id = subject_id"
    " WHERE s.email = %s AND kind = 'subscription.mail_confirmation'"
)


@pytest.fixture
def cookie_client(stack: Stack) -> Iterator[httpx2.Client]:
    """An HTTP client that keeps cookies, as a browser does."""
    with stack.client() as client:
        yield client


@pytest.fixture
def confirming_list(client: httpx2.Client) -> dict[str, Any]:
    """A mailing list on which people must confirm their subscriptions."""
    return new_list(client, confirm_required=True)


def sign_up(
    cookie_client: httpx2.Client, mailing_list: dict[str, Any], email: str, **fields: str
) -> httpx2.Response:
    """Send the form of the sign-up page, and return the page that follows."""
    path = f"/s/{mailing_list['slug']}"
    reply = cookie_client.post(path, data={"email": email, **fields}, headers=BROWSER_HEADERS)
    assert reply.status_code == 303, reply.text
    return follow_redirect(cookie_client, reply)


def click_button(
    cookie_client: httpx2.Client, page: httpx2.Response, action: str, answers: str | None = None
) -> httpx2.Response:
    """Click a button on the page, and return the resulting page."""
    form = {"action": action, "answers": answers or read_hidden_fields(page)["answers"]}
    reply = cookie_client.post(f"/subscribed?{page.url.query.decode()}", data=form)
    assert reply.status_code == 303, reply.text
    return follow_redirect(cookie_client, reply)


def backdate_answers(stack: Stack, page: httpx2.Response, list_id: int, age: timedelta) -> str:
    """Return the page's encrypted answers as if the form had been sent earlier."""
    keyring = stack.resources.keyring
    answers = open_answers(keyring, read_hidden_fields(page)["answers"], list_id, INPUT_LIFETIME)
    assert answers is not None
    sent_at = clock.now() - age
    return seal_answers(keyring, SentAnswers(list_id, answers.values, sent_at, sent_at))


def let_ten_minutes_pass(stack: Stack, email: str) -> None:
    stack.query(
        "UPDATE subscriptions SET confirmation_asked_at = now() - interval '11 minutes'"
        " WHERE email = %s",
        email,
    )


def count_mail_jobs(stack: Stack, email: str) -> int:
    [(count,)] = stack.query(COUNT_MAIL_JOBS, email)
    return int(str(count))


def read_input(page: httpx2.Response, name: str) -> str:
    [value] = re.findall(rf'name="{re.escape(name)}"[^>]* value="([^"]*)"', page.text)
    return html.unescape(value)


@pytest.mark.parametrize(("confirm_required", "heading"), [(True, "Check"), (False, "Thank you")])
def test_page_after_sign_up_shows_the_typed_address_but_no_url_contains_it(
    client: httpx2.Client, cookie_client: httpx2.Client, confirm_required: bool, heading: str
) -> None:
    mailing_list = new_list(client, confirm_required=confirm_required)
    name = new_address().partition("@")[0]
    page = sign_up(cookie_client, mailing_list, f"{name}@EXAMPLE.com")
    assert read_heading(page).startswith(heading)
    assert f"{name}@EXAMPLE.com" in read_text(page)
    assert str(page.url).endswith(f"/subscribed?list={mailing_list['id']}")
    assert name not in re.sub(r"<b class=.*?</b>", "", page.text)


def test_cookie_with_the_answers_is_encrypted_and_lasts_ten_minutes(
    cookie_client: httpx2.Client, confirming_list: dict[str, Any]
) -> None:
    path = f"/s/{confirming_list['slug']}"
    email = new_address()
    reply = cookie_client.post(path, data={"email": email}, headers=BROWSER_HEADERS)
    [cookie] = SimpleCookie(reply.headers["set-cookie"]).values()
    assert cookie.key == SIGN_UP_COOKIE.name
    attributes = (cookie["max-age"], cookie["samesite"].lower(), cookie["httponly"])
    assert attributes == ("600", "lax", True)
    assert email.partition("@")[0] not in str(reply.headers)


def test_page_ignores_a_cookie_that_is_older_than_ten_minutes_or_of_another_list(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client, confirming_list: dict[str, Any]
) -> None:
    keyring = stack.resources.keyring
    list_id = confirming_list["id"]
    email = new_address()
    other_list_id = new_list(client)["id"]
    now = clock.now()
    other_keyring = stack.resources.settings.encryption_keyring
    for sealing_keyring, sealed_list_id, sealed_at, is_shown in (
        (keyring, list_id, now - timedelta(minutes=9), True),
        (keyring, list_id, now - timedelta(minutes=11), False),
        (keyring, other_list_id, now, False),
        (other_keyring, list_id, now, False),
    ):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(clock, "now", lambda at=sealed_at: at)
            sealed_answers = seal_answers(
                sealing_keyring, SentAnswers(sealed_list_id, {"email": email}, now, now)
            )
        headers = {"Cookie": f"{SIGN_UP_COOKIE.name}={sealed_answers}"}
        page = stranger.get("/subscribed", params={"list": list_id}, headers=headers)
        assert read_heading(page) == "Check your e-mail"
        assert (email in read_text(page)) is is_shown
    for malformed_value in (
        "",
        ".",
        "x.y",
        f"{sealed_answers}x",
        sealed_answers[:-4],
        "ü",
        "a" * 5000,
    ):
        cookie = f"{SIGN_UP_COOKIE.name}={malformed_value}".encode()
        page = stranger.get(f"/subscribed?list={list_id}", headers=[(b"Cookie", cookie)])
        assert read_heading(page) == "Check your e-mail"
        assert email not in read_text(page)


def test_correct_it_button_leads_back_to_the_form_with_all_answers(
    client: httpx2.Client, cookie_client: httpx2.Client
) -> None:
    new_field(client, "city", public=True)
    mailing_list = new_list(client, confirm_required=True)
    email = new_address()
    page = sign_up(
        cookie_client, mailing_list, f"x{email}", name='A "quoted" name', **{"fields.city": "Oslo"}
    )
    form = click_button(cookie_client, page, "correct")
    assert form.url.path == f"/s/{mailing_list['slug']}"
    assert "example.com" not in str(form.url)
    shown_inputs = {name: read_input(form, name) for name in ("email", "name", "fields.city")}
    assert shown_inputs == {"email": f"x{email}", "name": 'A "quoted" name', "fields.city": "Oslo"}
    # Nobody else who opens the sign-up page in this browser sees the address.
    assert email not in cookie_client.get(f"/s/{mailing_list['slug']}").text
    corrected_page = sign_up(cookie_client, mailing_list, email, **{"fields.city": "Oslo"})
    assert f">{email}<" in read_text(corrected_page)
    assert require_member(client, mailing_list["id"], email)["fields"] == {"city": "Oslo"}


def test_correct_it_button_keeps_only_the_address_if_the_answers_exceed_a_cookie(
    client: httpx2.Client, cookie_client: httpx2.Client
) -> None:
    new_field(client, "city", public=True)
    new_field(client, "street", public=True)
    mailing_list = new_list(client)
    email = new_address()
    long_answers = {"fields.city": "ü" * 1000, "fields.street": "ü" * 1000}
    form = click_button(
        cookie_client, sign_up(cookie_client, mailing_list, email, **long_answers), "correct"
    )
    assert (read_input(form, "email"), read_input(form, "fields.city")) == (email, "")


def test_send_again_button_sends_a_mail_only_if_the_last_mail_is_ten_minutes_old(
    stack: Stack, cookie_client: httpx2.Client, confirming_list: dict[str, Any]
) -> None:
    list_id = confirming_list["id"]
    email = new_address()
    page = sign_up(cookie_client, confirming_list, email)
    await_mails(stack, email)
    let_ten_minutes_pass(stack, email)
    early_page = click_button(cookie_client, page, "again")
    assert "Please wait." in early_page.text
    assert email in read_text(early_page)
    old_answers = backdate_answers(stack, page, list_id, MIN_CONFIRMATION_INTERVAL)
    repeated_page = click_button(cookie_client, page, "again", old_answers)
    assert "We have sent the e\N{NON-BREAKING HYPHEN}mail again." in repeated_page.text
    assert email in read_text(repeated_page)
    first_mail, second_mail = await_mails(stack, email, 2)
    assert confirm(cookie_client, second_mail).status_code == 303
    # Neither the button on ``repeated_page`` nor the button on ``page`` sends a third mail, because
    # the second mail is less than ten minutes old. The hidden inputs of ``repeated_page`` contain
    # the time of the second mail. The hidden inputs of ``page`` were created before the second
    # mail, so Pressroom reads the time of the second mail from the database.
    assert "Please wait." in click_button(cookie_client, repeated_page, "again").text
    click_button(cookie_client, page, "again", old_answers)
    assert count_mail_jobs(stack, email) == 2
    assert first_mail["subject"] == second_mail["subject"]


def test_send_again_button_keeps_the_answers_that_a_known_person_must_still_confirm(
    stack: Stack,
    client: httpx2.Client,
    cookie_client: httpx2.Client,
    confirming_list: dict[str, Any],
) -> None:
    list_id = confirming_list["id"]
    email = new_address()
    sign_up(cookie_client, confirming_list, email)
    user_id = require_member(client, list_id, email)["user_id"]
    data(client.delete(f"/subscriptions/{list_id}/members/{user_id}"))
    let_ten_minutes_pass(stack, email)
    page = sign_up(cookie_client, confirming_list, email, name="Ada")
    let_ten_minutes_pass(stack, email)
    click_button(
        cookie_client,
        page,
        "again",
        backdate_answers(stack, page, list_id, MIN_CONFIRMATION_INTERVAL),
    )
    newest_mail, *_ = await_mails(stack, email, 3)
    assert require_member(client, list_id, email)["name"] is None
    confirm(cookie_client, newest_mail)
    assert require_member(client, list_id, email)["name"] == "Ada"


def test_page_and_buttons_are_equal_for_unknown_pending_confirmed_and_denied_addresses(
    stack: Stack,
    client: httpx2.Client,
    cookie_client: httpx2.Client,
    confirming_list: dict[str, Any],
) -> None:
    list_id = confirming_list["id"]
    unknown, confirmed, denied, denied_later, removed = (new_address() for _ in range(5))
    sign_up(cookie_client, confirming_list, confirmed)
    confirm(cookie_client, *await_mails(stack, confirmed))
    data(client.patch("/deny-list", json={"add_addresses": [denied]}))
    pages = []
    for email in (unknown, confirmed, denied, denied_later, removed):
        page = sign_up(cookie_client, confirming_list, email)
        if email == removed:
            # After the owner has removed a person's record, Pressroom doesn't send the confirmation
            # mail again.
            user_id = require_member(client, list_id, email)["user_id"]
            data(client.delete(f"/subscriptions/{list_id}/members/{user_id}"))
        if email == denied_later:
            data(client.patch("/deny-list", json={"add_addresses": [email]}))
        let_ten_minutes_pass(stack, email)
        jobs_before = count_mail_jobs(stack, email)
        old_answers = backdate_answers(stack, page, list_id, MIN_CONFIRMATION_INTERVAL)
        shown_pages = (
            page,
            click_button(cookie_client, page, "again", old_answers),
            click_button(cookie_client, page, "correct"),
        )
        pages.append([describe_page(each, email) for each in shown_pages])
        assert count_mail_jobs(stack, email) - jobs_before == (1 if email == unknown else 0)
    assert pages == [pages[0]] * 5


def describe_page(page: httpx2.Response, email: str) -> tuple[object, ...]:
    """Return what must be equal for all addresses, without the address and encrypted answers."""
    text = re.sub(r'name="answers" value="[^"]+"', "", read_text(page)).replace(email, "")
    headers = set(page.headers) - {"content-length"}
    return page.status_code, page.url, headers, text


def test_forged_or_hour_old_answers_lead_to_the_empty_form_and_send_no_mail(
    stack: Stack,
    client: httpx2.Client,
    cookie_client: httpx2.Client,
    confirming_list: dict[str, Any],
) -> None:
    list_id = confirming_list["id"]
    email = new_address()
    page = sign_up(cookie_client, confirming_list, email)
    let_ten_minutes_pass(stack, email)
    other_list = new_list(client, confirm_required=True)
    answers_of_other_list = read_hidden_fields(sign_up(cookie_client, other_list, email))["answers"]
    cookie_client.cookies.clear()
    sealed_answers = read_hidden_fields(page)["answers"]
    jobs_before = count_mail_jobs(stack, email)
    for answers in (
        "-",
        email,
        sealed_answers[:-2],
        f"{sealed_answers[:-9]}{'A' * 9}",
        answers_of_other_list,
        backdate_answers(stack, page, list_id, timedelta(minutes=61)),
    ):
        for action in ("again", "correct"):
            form = click_button(cookie_client, page, action, answers)
            assert form.url.path == f"/s/{confirming_list['slug']}"
            assert email not in form.text
    assert count_mail_jobs(stack, email) == jobs_before


def test_send_again_button_needs_no_second_challenge_and_signs_up_nobody(
    stack: Stack, client: httpx2.Client, cookie_client: httpx2.Client
) -> None:
    challenge_settings = {"challenge_enabled": True, "challenge_provider": "turnstile"}
    mailing_list = new_list(client, confirm_required=True, **challenge_settings)
    email = new_address()
    page = sign_up(cookie_client, mailing_list, email, **{WIDGET_FIELDS["turnstile"]: "pass-again"})
    let_ten_minutes_pass(stack, email)
    click_button(
        cookie_client,
        page,
        "again",
        backdate_answers(stack, page, mailing_list["id"], MIN_CONFIRMATION_INTERVAL),
    )
    await_mails(stack, email, 2)
    stack.query("DELETE FROM subscriptions WHERE list_id = %s", mailing_list["id"])
    click_button(
        cookie_client,
        page,
        "again",
        backdate_answers(stack, page, mailing_list["id"], MIN_CONFIRMATION_INTERVAL),
    )
    assert stack.query("SELECT 1 FROM subscriptions WHERE list_id = %s", mailing_list["id"]) == []


@pytest.mark.parametrize(
    ("domain", "url"),
    [
        ("Gmail.com", "https://mail.google.com/"),
        ("googlemail.com", "https://mail.google.com/"),
        ("outlook.com", "https://outlook.live.com/mail/"),
        ("hotmail.de", "https://outlook.live.com/mail/"),
        ("example.com", None),
        ("gmail.com.example.com", None),
    ],
)
def test_page_links_to_the_mailboxes_of_known_providers_without_the_address(
    cookie_client: httpx2.Client, confirming_list: dict[str, Any], domain: str, url: str | None
) -> None:
    name = new_address().partition("@")[0]
    page = sign_up(cookie_client, confirming_list, f"{name}@{domain}")
    links = re.findall(r'href="(https://[^"]+)"', page.text)
    assert links == ([] if url is None else [url])
