"""Tests of the pages where a reader confirms or ends a subscription with a mailed link."""

import html
import re
from typing import Any

import httpx2
import pytest

from devstack.harness.polling import eventually
from devstack.harness.stack import Stack
from models import MailedLink
from tests.support.http.pages import follow_redirect, read_heading, require_headers
from tests.support.lists.people_on_lists import Subscriber, new_list, subscribe, subscribe_pending
from tests.support.lists.subscribers import trace_for
from tests.support.people.erasure import erase

TITLE = "The Morning Letter"
ONE_CLICK = {"List-Unsubscribe": "One-Click"}


@pytest.fixture
def pending_subscriber(stack: Stack, client: httpx2.Client) -> Subscriber:
    """A person who has subscribed but not yet confirmed the subscription."""
    return subscribe_pending(stack, new_list(client, TITLE, confirm_required=True))


def button_actions(reply: httpx2.Response) -> list[str]:
    return re.findall(r'<button name="action" value="(\w+)"', reply.text)


def press(client: httpx2.Client, subscriber: Subscriber, action: str) -> httpx2.Response:
    """Press a button on the unsubscribe page, and follow the redirect."""
    reply = client.post(
        "/unsubscribe", params={"trace_id": subscriber.trace_id}, data={"action": action}
    )
    assert reply.status_code == 303, reply.text
    require_headers(reply)
    return follow_redirect(client, reply)


def open_page(client: httpx2.Client, subscriber: Subscriber) -> httpx2.Response:
    return client.get("/unsubscribe", params={"trace_id": subscriber.trace_id})


def test_unsubscribe_page_offers_to_unsubscribe_and_to_stop_mail(
    stranger: httpx2.Client, subscriber: Subscriber
) -> None:
    page = open_page(stranger, subscriber)
    assert read_heading(page) == "You are subscribed"
    assert button_actions(page) == ["leave", "stop_mail"]
    assert TITLE in page.text
    assert "r…@example.com" in page.text
    assert subscriber.email.partition("@")[0] not in page.text


def require_line_above_each_button(page: httpx2.Response) -> None:
    """Require a line of explanation above each button that changes the subscription."""
    explained_button = r'<p>[^<]+</p>\n<button name="action"[^>]*>[^<]+</button>'
    assert len(re.findall(explained_button, page.text)) == len(button_actions(page)) > 0


def test_each_button_of_the_unsubscribe_page_is_explained_by_one_line(
    stranger: httpx2.Client,
    client: httpx2.Client,
    subscriber: Subscriber,
    pending_subscriber: Subscriber,
) -> None:
    require_line_above_each_button(open_page(stranger, pending_subscriber))
    page = open_page(stranger, subscriber)
    require_line_above_each_button(page)
    assert "Why are you leaving? (optional)" in page.text
    require_line_above_each_button(press(stranger, subscriber, "stop_mail"))
    require_line_above_each_button(press(stranger, subscriber, "leave"))
    press(stranger, subscriber, "undo")
    client.delete(f"/subscriptions/{subscriber.list_id}/members/{subscriber.user_id}")
    require_line_above_each_button(open_page(stranger, subscriber))


def read_history(subscriber: Subscriber, action: str) -> list[tuple[object, ...]]:
    """Return who performed the action on the list, by which means, and from which IP address."""
    query = "SELECT actor, actor_id, via, ip FROM subscription_events WHERE list_id = %s"
    return subscriber.stack.query(f"{query} AND action = %s", subscriber.list_id, action)


def test_unsubscribe_button_can_be_undone(stranger: httpx2.Client, subscriber: Subscriber) -> None:
    unsubscribed_page = press(stranger, subscriber, "leave")
    assert read_history(subscriber, "unsubscribed") == [
        ("user", subscriber.user_id, "page", "127.0.0.1")
    ]
    assert read_heading(unsubscribed_page) == "You have unsubscribed"
    assert button_actions(unsubscribed_page) == ["undo"]
    assert subscriber.read_status() == ("unsubscribed", True)
    assert [row for row in subscriber.list_rows()["opt_outs"] if "list" in row and "page" in row]
    subscribed_page = press(stranger, subscriber, "undo")
    assert read_heading(subscribed_page) == "You are subscribed"
    assert subscriber.read_status() == ("active", True)
    assert subscriber.list_rows()["opt_outs"] == []


def test_stopped_mail_can_be_resumed_on_the_unsubscribe_page(
    stranger: httpx2.Client, subscriber: Subscriber
) -> None:
    page = press(stranger, subscriber, "stop_mail")
    assert read_heading(page) == "Your e-mails are turned off"
    assert button_actions(page) == ["resume_mail", "leave"]
    assert subscriber.read_status() == ("active", False)
    assert read_heading(press(stranger, subscriber, "resume_mail")) == "You are subscribed"
    assert subscriber.read_status() == ("active", True)


def test_undone_unsubscription_keeps_mail_off_that_was_off_before(
    stranger: httpx2.Client, subscriber: Subscriber
) -> None:
    press(stranger, subscriber, "stop_mail")
    press(stranger, subscriber, "leave")
    assert read_heading(press(stranger, subscriber, "undo")) == "Your e-mails are turned off"
    assert subscriber.read_status() == ("active", False)
    [opt_out] = subscriber.list_rows()["opt_outs"]
    assert "email" in opt_out


def test_undone_unsubscription_keeps_a_pending_subscription_pending(
    stranger: httpx2.Client, pending_subscriber: Subscriber
) -> None:
    page = open_page(stranger, pending_subscriber)
    assert read_heading(page) == "Not confirmed yet"
    assert button_actions(page) == ["leave"]
    assert read_heading(press(stranger, pending_subscriber, "leave")) == "You have unsubscribed"
    assert read_heading(press(stranger, pending_subscriber, "undo")) == "Not confirmed yet"
    assert pending_subscriber.read_status() == ("pending", True)


def test_removed_member_can_opt_out_on_the_unsubscribe_page_and_undo_that(
    stranger: httpx2.Client, client: httpx2.Client, subscriber: Subscriber
) -> None:
    assert client.delete(
        f"/subscriptions/{subscriber.list_id}/members/{subscriber.user_id}"
    ).is_success
    page = open_page(stranger, subscriber)
    assert read_heading(page) == "You are not subscribed"
    assert button_actions(page) == ["leave"]
    assert read_heading(press(stranger, subscriber, "leave")) == "You have unsubscribed"
    assert read_heading(press(stranger, subscriber, "undo")) == "You are not subscribed"
    assert subscriber.read_status() == ("removed", True)


def test_archived_list_can_be_left_but_not_rejoined_on_the_unsubscribe_page(
    stranger: httpx2.Client, client: httpx2.Client, subscriber: Subscriber
) -> None:
    assert client.delete(f"/lists/{subscriber.list_id}").is_success
    assert "closed" in open_page(stranger, subscriber).text
    assert button_actions(press(stranger, subscriber, "leave")) == []
    reply = stranger.post(
        "/unsubscribe", params={"trace_id": subscriber.trace_id}, data={"action": "undo"}
    )
    assert read_heading(reply, 404) == "This newsletter isn’t here"
    assert subscriber.read_status() == ("unsubscribed", True)


def test_unsubscribe_page_buttons_are_idempotent(
    stranger: httpx2.Client, subscriber: Subscriber
) -> None:
    for action in ("stop_mail", "leave", "undo", "resume_mail"):
        press(stranger, subscriber, action)
        rows_after_first_press = subscriber.list_rows()
        press(stranger, subscriber, action)
        assert subscriber.list_rows() == rows_after_first_press


def test_unsubscribe_page_accepts_the_trace_id_in_the_form(
    stranger: httpx2.Client, subscriber: Subscriber
) -> None:
    reply = stranger.post("/unsubscribe", data={"trace_id": subscriber.trace_id, "action": "leave"})
    assert reply.status_code == 303
    assert subscriber.read_status() == ("unsubscribed", True)


def test_mailed_pages_escape_html_and_templates_in_list_titles(
    stack: Stack, stranger: httpx2.Client, client: httpx2.Client
) -> None:
    title = "</title></style><script>alert(1)</script>\"'><img src=x onerror=alert(2)> {{ 7*7 }}"
    list_id = new_list(client, title, confirm_required=True)
    reader = subscribe(stack, list_id)
    for page in (open_page(stranger, reader), stranger.get(reader.confirm_url())):
        read_heading(page)
        assert "<img" not in page.text
        # Styles and links are removed, because a trace id may contain the digits 49 by chance.
        text = re.sub(
            r"<style>.*?</style>|(?:href|value|action)=\".*?\"", "", page.text, flags=re.S
        )
        assert "49" not in text.split("<bdi>")[1]
        assert title in html.unescape(page.text)


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "PUT", "DELETE", "PATCH"])
def test_only_post_requests_change_a_subscription_on_mailed_pages(
    stranger: httpx2.Client, pending_subscriber: Subscriber, method: str
) -> None:
    token = pending_subscriber.mailed_token()
    # Wait for the confirmation mail, because sending the mail adds a row to the database.
    eventually(
        lambda: pending_subscriber.stack.mails(to=pending_subscriber.email), what="the confirmation"
    )
    rows_before = pending_subscriber.list_rows()
    for query in ({}, {"action": "leave"}, {"action": "stop_mail"}, ONE_CLICK):
        for headers in ({}, {"X-HTTP-Method-Override": "POST"}, {"Purpose": "prefetch"}):
            stranger.request(
                method,
                "/unsubscribe",
                params={"trace_id": pending_subscriber.trace_id, **query},
                data={"action": "leave", **ONE_CLICK} if method != "HEAD" else None,
                headers=headers,
            )
            stranger.request(method, "/confirm", params={"token": token}, headers=headers)
    assert pending_subscriber.list_rows() == rows_before


ONE_CLICK_PARTS = {name: (None, value) for name, value in ONE_CLICK.items()}
FORM_TYPE = "application/x-www-form-urlencoded"
FORM_BODY = b"List-Unsubscribe=One-Click"
MULTIPART_TYPE = "multipart/form-data; boundary=b"
MULTIPART_BODY = (
    b'\r\n--b\r\nContent-Disposition: form-data; name="List-Unsubscribe"\r\n\r\n'
    b"\tOne-Click\r\n\r\n--b--\r\n\r\n"
)


def test_one_click_unsubscribe_tolerates_any_encoding_and_surrounding_whitespace(
    stranger: httpx2.Client, subscriber: Subscriber
) -> None:
    form_bodies = [
        FORM_BODY + end for end in (b"\r\n", b"\n", b"\r", b" \t\r\n\r\n", b"%0D%0A", b"+")
    ]
    form_bodies += [
        b"\r\n " + FORM_BODY,
        b"List-Unsubscribe = one-click\n",
        b"x=1&" + FORM_BODY + b"\r\n&",
    ]
    bodies = [
        (media_type, body)
        for body in form_bodies
        for media_type in (FORM_TYPE, "text/plain; charset=utf-8")
    ]
    bodies += [
        ("", FORM_BODY),
        ("application/octet-stream", FORM_BODY + b"\n"),
        (MULTIPART_TYPE, MULTIPART_BODY),
    ]
    body_with_trace_id = f"List-Unsubscribe=One-Click&trace_id={subscriber.trace_id}\r\n".encode()
    calls = [(media_type, body, subscriber.unsubscribe_url) for media_type, body in bodies]
    for media_type, body, url in [*calls, (FORM_TYPE, body_with_trace_id, "/unsubscribe")]:
        press(stranger, subscriber, "resume_mail")
        headers = {"Content-Type": media_type} if media_type else {}
        reply = stranger.post(url, content=body, headers=headers)
        assert reply.status_code == 200, (media_type, body, reply.text)
        assert subscriber.read_status() == ("active", False), (media_type, body)


@pytest.mark.parametrize("content", [{"data": ONE_CLICK}, {"files": ONE_CLICK_PARTS}])
def test_one_click_unsubscribe_stops_mail_without_redirect_and_is_idempotent(
    stranger: httpx2.Client, subscriber: Subscriber, content: dict[str, Any]
) -> None:
    reply = stranger.post(subscriber.unsubscribe_url, **content)
    assert reply.status_code == 200
    assert reply.headers["content-type"].startswith("text/plain")
    require_headers(reply)
    assert subscriber.read_status() == ("active", False)
    [opt_out] = subscriber.list_rows()["opt_outs"]
    assert {"email", "one-click"} <= set(opt_out)
    rows_before = subscriber.list_rows()
    assert stranger.post(subscriber.unsubscribe_url, **content).status_code == 200
    assert subscriber.list_rows() == rows_before


def test_one_click_unsubscribe_ignores_cookies_and_credentials(
    stack: Stack, subscriber: Subscriber
) -> None:
    with stack.client() as client:
        client.headers.update({"Authorization": "Bearer junk", "X-API-Key": "prk_junk"})
        client.headers.update(
            {"Cookie": "session=junk; csrf=junk", "Origin": "https://elsewhere.test"}
        )
        assert client.post(subscriber.unsubscribe_url, data=ONE_CLICK).status_code == 200
        assert read_heading(open_page(client, subscriber)) == "Your e-mails are turned off"
        assert read_heading(press(client, subscriber, "leave")) == "You have unsubscribed"


def test_one_click_unsubscribe_with_a_forged_trace_id_is_rejected(
    stranger: httpx2.Client, subscriber: Subscriber
) -> None:
    rows_before = subscriber.list_rows()
    assert stranger.post(subscriber.unsubscribe_url[:-1], data=ONE_CLICK).status_code == 403
    assert stranger.post("/unsubscribe", files=ONE_CLICK_PARTS).status_code == 400
    assert subscriber.list_rows() == rows_before


@pytest.mark.parametrize(
    "body", [{}, {"List-Unsubscribe": "one-click-later"}, {"action": "erase"}, {"action": ""}]
)
def test_unsubscribe_request_with_an_unknown_action_changes_nothing(
    stranger: httpx2.Client, subscriber: Subscriber, body: dict[str, str]
) -> None:
    rows_before = subscriber.list_rows()
    reply = stranger.post(subscriber.unsubscribe_url, data=body)
    assert read_heading(reply, 422) == "That didn’t work"
    plain_body = "&".join(f"{name}={value}" for name, value in body.items())
    reply = stranger.post(
        subscriber.unsubscribe_url, content=plain_body, headers={"Content-Type": "text/plain"}
    )
    assert read_heading(reply, 415 if plain_body else 422) == "That didn’t work"
    assert subscriber.list_rows() == rows_before


def test_forged_trace_ids_get_the_same_error_page_that_reveals_nothing(
    stranger: httpx2.Client, subscriber: Subscriber
) -> None:
    rows_before = subscriber.list_rows()
    error_pages = set()
    version = subscriber.trace_id[:1]
    rest = subscriber.trace_id[1:]
    for forged_trace_id in (
        "junk",
        "x" * 5000,
        "\0",
        "😀é",
        f"2{rest}",
        subscriber.trace_id[:-1],
        f"{subscriber.trace_id}A",
        version + rest[::-1],
        f'"><script>{subscriber.trace_id}</script>',
    ):
        query = {"trace_id": forged_trace_id}
        for reply in (
            stranger.get("/unsubscribe", params=query),
            stranger.post("/unsubscribe", params=query, data={"action": "leave"}),
        ):
            assert read_heading(reply, 403) == "This link doesn’t work", forged_trace_id
            error_pages.add(reply.text)
    [error_page] = error_pages
    assert TITLE not in error_page
    assert subscriber.list_rows() == rows_before


def test_missing_trace_id_or_unknown_list_gets_an_error_page(
    stack: Stack, stranger: httpx2.Client, subscriber: Subscriber
) -> None:
    read_heading(
        stranger.get(f"/unsubscribe?trace_id={trace_for(stack, 1, subscriber.user_id)}"), 404
    )
    for url in ("/unsubscribe", "/unsubscribe?trace_id="):
        assert read_heading(stranger.get(url), 400) == "This link is incomplete"
        reply = stranger.post(url, data={"action": "leave"})
        assert read_heading(reply, 400) == "This link is incomplete"
    reply_to_two_ids = stranger.get(f"{subscriber.unsubscribe_url}&trace_id=other")
    assert read_heading(reply_to_two_ids, 400) == "This link doesn’t work"


def test_trace_id_of_an_unknown_person_shows_them_as_not_subscribed(
    stack: Stack, stranger: httpx2.Client, subscriber: Subscriber
) -> None:
    query = {"trace_id": trace_for(stack, subscriber.list_id, 1)}
    for reply in (
        stranger.get("/unsubscribe", params=query),
        follow_redirect(
            stranger, stranger.post("/unsubscribe", params=query, data={"action": "leave"})
        ),
    ):
        assert read_heading(reply) == "You are not subscribed"
        assert "<button" not in reply.text


def test_unsubscribe_page_of_an_erased_person_shows_no_address(
    stack: Stack, stranger: httpx2.Client, subscriber: Subscriber
) -> None:
    erase(stack.resources, subscriber.email)
    page = open_page(stranger, subscriber)
    assert read_heading(page) == "You are not subscribed"
    assert "@" not in re.sub(r"<style>.*?</style>", "", page.text, flags=re.S)


def test_mailed_confirmation_link_activates_the_subscription_and_is_idempotent(
    stranger: httpx2.Client, pending_subscriber: Subscriber
) -> None:
    url = pending_subscriber.confirm_url()
    page = stranger.get(url)
    assert read_heading(page) == "Confirm your subscription"
    assert TITLE in page.text
    assert "r…@example.com" in page.text
    assert pending_subscriber.email not in page.text
    reply = stranger.post(url)
    assert reply.status_code == 303
    require_headers(reply)
    assert pending_subscriber.read_status() == ("active", True)
    assert read_history(pending_subscriber, "confirmed")[0][:3] == (
        "user",
        pending_subscriber.user_id,
        "confirmation",
    )
    final_page = follow_redirect(stranger, reply)
    assert read_heading(final_page) == "You’re subscribed"
    assert "<button" not in final_page.text
    # A confirmation link that is used again still shows that the reader is subscribed.
    rows_before = pending_subscriber.list_rows()
    assert stranger.post(url).status_code == 303
    assert read_heading(stranger.get(url)) == "You’re subscribed"
    assert pending_subscriber.list_rows() == rows_before


def test_used_confirmation_link_does_not_confirm_again_after_unsubscribing(
    stranger: httpx2.Client, pending_subscriber: Subscriber
) -> None:
    url = pending_subscriber.confirm_url()
    stranger.post(url)
    press(stranger, pending_subscriber, "leave")
    rows_before = pending_subscriber.list_rows()
    assert read_heading(stranger.get(url), 409) == "There is nothing to confirm"
    assert read_heading(stranger.post(url), 409) == "There is nothing to confirm"
    assert pending_subscriber.list_rows() == rows_before
    # Anyone can request another confirmation mail for an address.
    stranger.post(
        f"/subscriptions/{pending_subscriber.list_id}", json={"email": pending_subscriber.email}
    )
    assert read_heading(stranger.get(url), 403) == "This link has already been used"
    assert read_heading(stranger.post(url), 403) == "This link has already been used"
    assert pending_subscriber.read_status() == ("pending", True)
    assert (
        read_heading(stranger.get(pending_subscriber.confirm_url())) == "Confirm your subscription"
    )


def test_expired_or_forged_or_missing_confirmation_token_gets_an_error_page(
    stack: Stack, stranger: httpx2.Client, pending_subscriber: Subscriber
) -> None:
    url = pending_subscriber.confirm_url()
    stack.query(
        f"UPDATE {MailedLink.__tablename__} SET expires_at = now() WHERE user_id = %s",
        pending_subscriber.user_id,
    )
    rows_before = pending_subscriber.list_rows()
    for invalid_url in (
        url,
        "/confirm?token=junk",
        "/confirm?token=%00%ff",
        f"/confirm?token={'x' * 5000}",
        f"/confirm?token={pending_subscriber.trace_id}",
    ):
        assert read_heading(stranger.get(invalid_url), 403) == "This link doesn’t work"
        assert read_heading(stranger.post(invalid_url), 403) == "This link doesn’t work"
    for invalid_url in ("/confirm", "/confirm?token="):
        assert read_heading(stranger.get(invalid_url), 400) == "This link is incomplete"
        assert read_heading(stranger.post(invalid_url), 400) == "This link is incomplete"
    reply_to_two_tokens = stranger.post("/confirm?token=one", data={"token": "other"})
    assert read_heading(reply_to_two_tokens, 400) == "This link doesn’t work"
    assert pending_subscriber.list_rows() == rows_before


@pytest.mark.parametrize("path", ["/unsubscribe", "/confirm", "/report"])
def test_errors_on_mailed_pages_are_html_pages(stranger: httpx2.Client, path: str) -> None:
    wrong_method = stranger.put(path)
    read_heading(wrong_method, 405)
    assert wrong_method.headers["allow"] == "GET, HEAD, POST"
    read_heading(stranger.post(path, content=b"x" * (2 * 1024 * 1024 + 1)), 413)
    read_heading(stranger.post(path, content=b"<x/>", headers={"Content-Type": "text/xml"}), 415)
    reply_without_boundary = stranger.post(
        path, content=b"--", headers={"Content-Type": "multipart/form-data"}
    )
    read_heading(reply_without_boundary, 400)
    for malformed_body in (b'{"action": ["leave"], "token": {}}', b"[", b'{"trace_id": 7}'):
        reply = stranger.post(
            path, content=malformed_body, headers={"Content-Type": "application/json"}
        )
        assert read_heading(reply, reply.status_code)
        assert reply.status_code in {400, 422}


def test_cross_origin_scripts_can_access_the_api_but_no_html_page(
    stranger: httpx2.Client, subscriber: Subscriber
) -> None:
    origin = {"Origin": "https://elsewhere.test"}
    preflight = {**origin, "Access-Control-Request-Method": "POST"}
    assert stranger.get("/healthz", headers=origin).headers["access-control-allow-origin"] == "*"
    # Sign-up pages can be opened by the id of the mailing list, too.
    sign_up_path = f"/s/{subscriber.list_id}"
    reader_paths = (
        "/unsubscribe",
        "/confirm",
        "/report",
        "/unsubscribe/",
        sign_up_path,
        f"{sign_up_path}/",
    )
    for path in (*reader_paths, "/login", "/account", "/register", "/password/forgotten"):
        for reply in (
            stranger.get(path, params={"trace_id": subscriber.trace_id}, headers=origin),
            stranger.options(path, headers=preflight),
        ):
            assert not [name for name in reply.headers if name.startswith("access-control")]
