"""Tests of sign-up forms on other websites: their redirects, errors and challenges."""

import html
import re
import secrets
from collections.abc import Mapping
from typing import Any

import httpx2
import pytest

from api.cookies import SIGN_UP_COOKIE
from devstack.harness.stack import Owner, Stack
from tests.support.http.pages import BROWSER_HEADERS, follow_redirect, read_heading
from tests.support.http.replies import data, problem
from tests.support.lists.sign_up_forms import OWNER_ORIGIN, TITLE, WIDGET_FIELDS
from tests.support.lists.subscribers import (
    fetch_members,
    find_member,
    new_address,
    new_list,
    require_member,
)
from tests.support.people.oauth import log_in
from tests.support.security.return_urls import HOSTILE_RETURN_URLS, SHOP


@pytest.fixture
def form_list_id(client: httpx2.Client) -> int:
    """The id of a mailing list whose title contains HTML markup."""
    return int(new_list(client, title=TITLE)["id"])


def send(
    client: httpx2.Client,
    form_list_id: int,
    headers: Mapping[str, str] = BROWSER_HEADERS,
    /,
    **fields: str,
) -> httpx2.Response:
    """Send the form as a browser does, unless ``headers`` say otherwise."""
    return client.post(f"/subscriptions/{form_list_id}", data=fields, headers=headers)


def read_thanks_heading(client: httpx2.Client, reply: httpx2.Response) -> str:
    assert reply.status_code == 303, reply.text
    return read_heading(follow_redirect(client, reply))


def read_error_message(reply: httpx2.Response) -> str:
    match = re.search(r'<p class="wrong" role="alert"[^>]*>(.*?)</p>', reply.text)
    assert match, reply.text
    return html.unescape(match[1])


def test_sign_up_form_subscribes_and_redirects_to_the_thanks_page(
    client: httpx2.Client, stranger: httpx2.Client, form_list_id: int
) -> None:
    email = new_address()
    reply = send(stranger, form_list_id, email=email)
    assert read_thanks_heading(stranger, reply) == "Thank you"
    assert html.escape(TITLE) in follow_redirect(stranger, reply).text
    subscriber = require_member(client, form_list_id, email)
    assert (subscriber["status"], subscriber["source"]) == ("active", "form")
    path = f"/lists/{form_list_id}/members/{subscriber['user_id']}/history"
    [event] = data(client.get(path))["items"]
    assert (event["actor"], event["via"]) == ("stranger", "form")


@pytest.mark.parametrize("accept", ["*/*", "text/html", "text/html, application/json", ""])
def test_sign_up_form_redirects_unless_only_json_is_accepted(
    client: httpx2.Client, stranger: httpx2.Client, form_list_id: int, accept: str
) -> None:
    headers = {"Accept": accept}
    multipart_fields = {"email": (None, new_address())}
    for reply in (
        send(stranger, form_list_id, headers, email=new_address()),
        stranger.post(f"/subscriptions/{form_list_id}", files=multipart_fields, headers=headers),
    ):
        assert reply.status_code == 303
    assert len(fetch_members(client, form_list_id)) == 2


def test_sign_up_form_returns_json_if_requested(
    client: httpx2.Client, stranger: httpx2.Client, form_list_id: int
) -> None:
    accept = {"Accept": "application/json"}
    assert data(send(stranger, form_list_id, accept, email=new_address())) == 1
    error = problem(send(stranger, form_list_id, accept, email="nobody"), 422, "body.invalid")
    assert error["errors"][0]["field"] == "body.email"
    assert len(fetch_members(client, form_list_id)) == 1


def test_sign_up_form_of_a_list_that_requires_confirmation_creates_a_pending_member(
    client: httpx2.Client, stranger: httpx2.Client
) -> None:
    thanks_text = "Until tomorrow."
    list_id = new_list(client, confirm_required=True, thanks_text=thanks_text)["id"]
    email = new_address()
    reply = send(stranger, list_id, email=email)
    assert read_thanks_heading(stranger, reply) == "Check your e-mail"
    # The owner's thanks text is shown only after the person has confirmed the sign-up.
    assert thanks_text not in follow_redirect(stranger, reply).text
    assert require_member(client, list_id, email)["status"] == "pending"


def test_sign_up_form_shows_the_same_page_for_a_known_address(
    client: httpx2.Client, stranger: httpx2.Client, form_list_id: int
) -> None:
    email = new_address()
    first, second = (send(stranger, form_list_id, email=email) for _ in range(2))
    assert first.headers["location"] == second.headers["location"]
    assert set(first.headers) == set(second.headers)
    assert email not in first.headers["location"]
    assert len(fetch_members(client, form_list_id)) == 1


def test_sign_up_form_redirects_only_to_origins_of_the_operator_or_the_list(
    client: httpx2.Client, stranger: httpx2.Client, form_list_id: int
) -> None:
    data(client.patch(f"/lists/{form_list_id}", json={"redirect_origins": [OWNER_ORIGIN]}))
    other_list_id = new_list(client)["id"]
    for target_list_id, url in (
        (form_list_id, f"{OWNER_ORIGIN}/thanks?from=form#top"),
        (form_list_id, "https://shop.example/"),
        (other_list_id, "https://shop.example/joined"),
        (other_list_id, "http://localhost:3000/"),
    ):
        reply = send(stranger, target_list_id, email=new_address(), redirect_url=url)
        assert (reply.status_code, reply.headers["location"]) == (303, url)
    # An allowed origin of one list isn't allowed for another list.
    reply = send(
        stranger, other_list_id, email=new_address(), redirect_url=f"{OWNER_ORIGIN}/thanks"
    )
    assert read_thanks_heading(stranger, reply) == "Thank you"
    assert len(fetch_members(client, form_list_id)) == 2
    assert len(fetch_members(client, other_list_id)) == 3


def test_sign_up_form_never_redirects_to_a_hostile_url(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client, form_list_id: int
) -> None:
    data(client.patch(f"/lists/{form_list_id}", json={"redirect_origins": [OWNER_ORIGIN]}))
    urls_like_the_origin = [
        f"{OWNER_ORIGIN}@evil.example/",
        f"{OWNER_ORIGIN}.evil.example/",
        f"{OWNER_ORIGIN}:444/",
        "//evil.example",
    ]
    email = new_address()
    # Pressroom adds query parameters such as ``status`` to the return URL of a top-up, so a top-up
    # rejects return URLs that already contain these parameters. Sign-up forms accept return URLs
    # with these parameters, so the test skips such URLs.
    hostile_urls = [url for url in HOSTILE_RETURN_URLS if not url.startswith(f"https://{SHOP}/?")]
    for url in [*urls_like_the_origin, *hostile_urls[::30]]:
        reply = send(stranger, form_list_id, email=email, redirect_url=url)
        assert reply.status_code == 303
        assert reply.headers["location"] == f"{stack.api_url}/subscribed?list={form_list_id}"


def test_sign_up_form_names_an_invalid_address_and_offers_correction(
    client: httpx2.Client, stranger: httpx2.Client, form_list_id: int
) -> None:
    redirect_url = "https://shop.example/joined"
    for invalid_address in ('reader"><b>@', "", "reader@example"):
        reply = send(stranger, form_list_id, email=invalid_address, redirect_url=redirect_url)
        assert read_heading(reply, 422) == "Not subscribed yet"
        assert read_error_message(reply)
        assert (
            f'name="email" type="email" autocomplete="email" value="{html.escape(invalid_address)}"'
            in (reply.text.replace("&#34;", "&quot;"))
        )
    # The form on the error page keeps the redirect URL, and the page's content security policy
    # allows the redirect.
    assert f'name="redirect_url" value="{redirect_url}"' in reply.text
    assert "form-action 'self' https:;" in f"{reply.headers['content-security-policy']};"
    reply_without_address = stranger.post(
        f"/subscriptions/{form_list_id}", data={"name": "x"}, headers=BROWSER_HEADERS
    )
    assert read_error_message(reply_without_address) == "Please enter your e-mail address."
    assert fetch_members(client, form_list_id) == []


def test_error_page_of_a_sign_up_form_omits_a_hostile_redirect_url(
    stranger: httpx2.Client, form_list_id: int
) -> None:
    reply = send(stranger, form_list_id, email="wrong", redirect_url="https://evil.example/")
    assert "evil" not in reply.text + reply.headers["content-security-policy"]


def test_sign_up_form_of_an_archived_or_unknown_list_shows_a_404_page(
    client: httpx2.Client, stranger: httpx2.Client, form_list_id: int
) -> None:
    data(client.delete(f"/lists/{form_list_id}"))
    for list_id in (form_list_id, 1):
        assert (
            read_heading(send(stranger, list_id, email=new_address()), 404)
            == "This newsletter isn’t here"
        )
    assert read_heading(stranger.get("/subscribed", params={"list": form_list_id}), 404)


@pytest.mark.parametrize("provider", WIDGET_FIELDS)
def test_sign_up_form_shows_the_challenge_again_until_the_challenge_is_passed(
    client: httpx2.Client, stranger: httpx2.Client, provider: str
) -> None:
    fields = {"challenge_enabled": True, "challenge_provider": provider}
    list_id = new_list(client, **fields)["id"]
    token_field = WIDGET_FIELDS[provider]
    email = new_address()
    foreign_token = "pass-of-another-provider"
    for challenge_fields, status in (
        ({}, 422),
        ({token_field: f"fail-{secrets.token_hex(6)}"}, 403),
        (
            {
                "challenge-provider": "other",
                "challenge-token": foreign_token,
                "challenge-action": "x",
            },
            422,
        ),
    ):
        reply = send(stranger, list_id, BROWSER_HEADERS, email=email, **challenge_fields)
        assert reply.status_code == status
        assert read_error_message(reply).startswith("We couldn’t verify that you are human.")
        assert f'data-sitekey="sandbox-{provider}-site-key" data-action="subscribe"' in reply.text
        assert f'value="{email}"' in reply.text
    assert find_member(client, list_id, email) is None
    passed_challenge = {token_field: f"pass-{secrets.token_hex(6)}"}
    assert (
        read_thanks_heading(
            stranger, send(stranger, list_id, BROWSER_HEADERS, email=email, **passed_challenge)
        )
        == "Thank you"
    )
    assert require_member(client, list_id, email)["source"] == "challenge"


def test_cross_site_sign_up_form_ignores_the_session_of_a_logged_in_person(
    stack: Stack, client: httpx2.Client, form_list_id: int
) -> None:
    logged_in_owner: Owner = stack.create_owner()
    person = log_in(stack, logged_in_owner)
    email = new_address()
    cross_site_headers = {
        **BROWSER_HEADERS,
        "Origin": "https://evil.example",
        "Sec-Fetch-Site": "cross-site",
    }
    with person.browser as browser:
        # The request contains the session cookie, although a browser wouldn't send it.
        reply = send(browser, form_list_id, cross_site_headers, email=email)
        assert reply.status_code == 303
        # The response doesn't start a session.
        assert set(reply.cookies) == {SIGN_UP_COOKIE.name}
    assert require_member(client, form_list_id, email)["source"] == "form"
    assert find_member(client, form_list_id, logged_in_owner.email) is None


@pytest.mark.parametrize("query", [{}, {"list": "x"}, {"list": "-1"}])
def test_thanks_page_requires_a_valid_list_id(
    stranger: httpx2.Client, query: dict[str, Any]
) -> None:
    assert read_heading(stranger.get("/subscribed", params=query), 400)


def test_redirect_origins_are_normalized_and_deduplicated(
    client: httpx2.Client, form_list_id: int
) -> None:
    path = f"/lists/{form_list_id}"
    ten_origins = [f"https://{n}.example" for n in range(10)]
    repeated_origins = ["https://A.example", "https://a.example:443", "http://[::1]:8080"]
    for given_origins, stored_origins in (
        (repeated_origins, ["https://a.example", "http://[::1]:8080"]),
        (ten_origins, ten_origins),
        ([], []),
    ):
        assert (
            data(client.patch(path, json={"redirect_origins": given_origins}))["redirect_origins"]
            == stored_origins
        )
        assert (
            data(client.patch(path, json={"tagline": "Other"}))["redirect_origins"]
            == stored_origins
        )
        assert (
            new_list(client, redirect_origins=given_origins)["redirect_origins"] == stored_origins
        )


def test_invalid_or_too_many_redirect_origins_are_rejected(
    client: httpx2.Client, form_list_id: int
) -> None:
    for origins in [[f"https://{n}.example" for n in range(11)], ["https://a.example/"], ["*"]]:
        reply = client.patch(f"/lists/{form_list_id}", json={"redirect_origins": origins})
        error = problem(reply, 422, "list.redirect_origins")
        assert error["errors"][0]["field"] == "body.redirect_origins"
        assert data(client.get(f"/lists/{form_list_id}"))["redirect_origins"] == []
