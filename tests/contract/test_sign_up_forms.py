"""A plain HTML form subscribes an address: its sender is led back, or told what to correct."""

import html
import re
import secrets
from collections.abc import Mapping

import httpx2
import pytest

from api.cookies import SIGN_UP_COOKIE
from devstack.harness.stack import Owner, Stack
from tests.support.http.pages import BROWSER_HEADERS, follow_redirect, read_heading
from tests.support.http.replies import data, problem
from tests.support.lists.sign_up_forms import OWNER_ORIGIN, TITLE, WIDGET_FIELDS
from tests.support.lists.subscribers import known_member, member, members, new_address, new_list
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


def thanks(client: httpx2.Client, reply: httpx2.Response) -> str:
    assert reply.status_code == 303, reply.text
    return read_heading(follow_redirect(client, reply))


def said(reply: httpx2.Response) -> str:
    found = re.search(r'<p class="wrong" role="alert"[^>]*>(.*?)</p>', reply.text)
    assert found, reply.text
    return html.unescape(found[1])


def test_sign_up_form_subscribes_and_redirects_to_the_thanks_page(
    client: httpx2.Client, stranger: httpx2.Client, form_list_id: int
) -> None:
    email = new_address()
    reply = send(stranger, form_list_id, email=email)
    assert thanks(stranger, reply) == "Thank you"
    assert html.escape(TITLE) in follow_redirect(stranger, reply).text
    found = known_member(client, form_list_id, email)
    assert (found["status"], found["source"]) == ("active", "form")
    path = f"/lists/{form_list_id}/members/{found['user_id']}/history"
    [event] = data(client.get(path))["items"]
    assert (event["actor"], event["via"]) == ("stranger", "form")


@pytest.mark.parametrize("accept", ["*/*", "text/html", "text/html, application/json", ""])
def test_sign_up_form_redirects_unless_only_json_is_accepted(
    client: httpx2.Client, stranger: httpx2.Client, form_list_id: int, accept: str
) -> None:
    headers = {"Accept": accept}
    in_parts = {"email": (None, new_address())}
    for reply in (
        send(stranger, form_list_id, headers, email=new_address()),
        stranger.post(f"/subscriptions/{form_list_id}", files=in_parts, headers=headers),
    ):
        assert reply.status_code == 303
    assert len(members(client, form_list_id)) == 2


def test_sign_up_form_returns_json_if_requested(
    client: httpx2.Client, stranger: httpx2.Client, form_list_id: int
) -> None:
    accept = {"Accept": "application/json"}
    assert data(send(stranger, form_list_id, accept, email=new_address())) == 1
    error = problem(send(stranger, form_list_id, accept, email="nobody"), 422, "body.invalid")
    assert error["errors"][0]["field"] == "body.email"
    assert len(members(client, form_list_id)) == 1


def test_sign_up_form_of_a_list_that_requires_confirmation_creates_a_pending_member(
    client: httpx2.Client, stranger: httpx2.Client
) -> None:
    words = "Until tomorrow."
    list_id = new_list(client, confirm_required=True, thanks_text=words)["id"]
    email = new_address()
    reply = send(stranger, list_id, email=email)
    assert thanks(stranger, reply) == "Check your e-mail"
    # The owner's thanks are for who confirmed.
    assert words not in follow_redirect(stranger, reply).text
    assert known_member(client, list_id, email)["status"] == "pending"


def test_sign_up_form_shows_the_same_page_for_a_known_address(
    client: httpx2.Client, stranger: httpx2.Client, form_list_id: int
) -> None:
    email = new_address()
    first, second = (send(stranger, form_list_id, email=email) for _ in range(2))
    assert first.headers["location"] == second.headers["location"]
    assert set(first.headers) == set(second.headers)
    assert email not in first.headers["location"]
    assert len(members(client, form_list_id)) == 1


def test_sign_up_form_redirects_only_to_origins_of_the_operator_or_the_list(
    client: httpx2.Client, stranger: httpx2.Client, form_list_id: int
) -> None:
    data(client.patch(f"/lists/{form_list_id}", json={"redirect_origins": [OWNER_ORIGIN]}))
    other = new_list(client)["id"]
    for where, url in (
        (form_list_id, f"{OWNER_ORIGIN}/thanks?from=form#top"),
        (form_list_id, "https://shop.example/"),
        (other, "https://shop.example/joined"),
        (other, "http://localhost:3000/"),
    ):
        reply = send(stranger, where, email=new_address(), redirect_url=url)
        assert (reply.status_code, reply.headers["location"]) == (303, url)
    # An origin of one list is none of another.
    reply = send(stranger, other, email=new_address(), redirect_url=f"{OWNER_ORIGIN}/thanks")
    assert thanks(stranger, reply) == "Thank you"
    assert len(members(client, form_list_id)) == 2
    assert len(members(client, other)) == 3


def test_sign_up_form_never_redirects_to_a_hostile_url(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client, form_list_id: int
) -> None:
    data(client.patch(f"/lists/{form_list_id}", json={"redirect_origins": [OWNER_ORIGIN]}))
    owned = [
        f"{OWNER_ORIGIN}@evil.example/",
        f"{OWNER_ORIGIN}.evil.example/",
        f"{OWNER_ORIGIN}:444/",
        "//evil.example",
    ]
    email = new_address()
    # Topups refuse the others for the names in their query alone.
    hostile = [url for url in HOSTILE_RETURN_URLS if not url.startswith(f"https://{SHOP}/?")]
    for url in [*owned, *hostile[::30]]:
        reply = send(stranger, form_list_id, email=email, redirect_url=url)
        assert reply.status_code == 303
        assert reply.headers["location"] == f"{stack.api_url}/subscribed?list={form_list_id}"


def test_sign_up_form_names_an_invalid_address_and_offers_correction(
    client: httpx2.Client, stranger: httpx2.Client, form_list_id: int
) -> None:
    back = "https://shop.example/joined"
    for wrong in ('reader"><b>@', "", "reader@example"):
        reply = send(stranger, form_list_id, email=wrong, redirect_url=back)
        assert read_heading(reply, 422) == "Not subscribed yet"
        assert said(reply)
        assert f'name="email" type="email" autocomplete="email" value="{html.escape(wrong)}"' in (
            reply.text.replace("&#34;", "&quot;")
        )
    # The page's own form leads back as the first would have, and browsers let it.
    assert f'name="redirect_url" value="{back}"' in reply.text
    assert "form-action 'self' https:;" in f"{reply.headers['content-security-policy']};"
    missing = stranger.post(
        f"/subscriptions/{form_list_id}", data={"name": "x"}, headers=BROWSER_HEADERS
    )
    assert said(missing) == "Please enter your e-mail address."
    assert members(client, form_list_id) == []


def test_error_page_of_a_sign_up_form_omits_a_hostile_redirect_url(
    stranger: httpx2.Client, form_list_id: int
) -> None:
    reply = send(stranger, form_list_id, email="wrong", redirect_url="https://evil.example/")
    assert "evil" not in reply.text + reply.headers["content-security-policy"]


def test_sign_up_form_of_an_archived_or_unknown_list_shows_a_404_page(
    client: httpx2.Client, stranger: httpx2.Client, form_list_id: int
) -> None:
    data(client.delete(f"/lists/{form_list_id}"))
    for each in (form_list_id, 1):
        assert read_heading(send(stranger, each, email=new_address()), 404) == "List not found"
    assert read_heading(stranger.get("/subscribed", params={"list": form_list_id}), 404)


@pytest.mark.parametrize("provider", WIDGET_FIELDS)
def test_sign_up_form_shows_the_challenge_again_until_the_challenge_is_passed(
    client: httpx2.Client, stranger: httpx2.Client, provider: str
) -> None:
    fields = {"challenge_enabled": True, "challenge_provider": provider}
    list_id = new_list(client, **fields)["id"]
    name = WIDGET_FIELDS[provider]
    email = new_address()
    other = "pass-of-another-provider"
    for sent, status in (
        ({}, 422),
        ({name: f"fail-{secrets.token_hex(6)}"}, 403),
        ({"challenge-provider": "other", "challenge-token": other, "challenge-action": "x"}, 422),
    ):
        reply = send(stranger, list_id, BROWSER_HEADERS, email=email, **sent)
        assert reply.status_code == status
        assert said(reply).startswith("We couldn’t verify that you are human.")
        assert f'data-sitekey="sandbox-{provider}-site-key" data-action="subscribe"' in reply.text
        assert f'value="{email}"' in reply.text
    assert member(client, list_id, email) is None
    token = {name: f"pass-{secrets.token_hex(6)}"}
    assert (
        thanks(stranger, send(stranger, list_id, BROWSER_HEADERS, email=email, **token))
        == "Thank you"
    )
    assert known_member(client, list_id, email)["source"] == "challenge"


def test_cross_site_sign_up_form_ignores_the_session_of_a_logged_in_person(
    stack: Stack, client: httpx2.Client, form_list_id: int
) -> None:
    victim: Owner = stack.create_owner()
    person = log_in(stack, victim)
    email = new_address()
    foreign = {**BROWSER_HEADERS, "Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}
    with person.browser as browser:
        # A browser would not even send the cookie along.
        reply = send(browser, form_list_id, foreign, email=email)
        assert reply.status_code == 303
        # The response doesn't start a session.
        assert set(reply.cookies) == {SIGN_UP_COOKIE.name}
    assert known_member(client, form_list_id, email)["source"] == "form"
    assert member(client, form_list_id, victim.email) is None


def test_thanks_page_requires_a_valid_list_id(stranger: httpx2.Client) -> None:
    for query in ({}, {"list": "x"}, {"list": "-1"}):
        assert read_heading(stranger.get("/subscribed", params=query), 400)


def test_redirect_origins_are_normalized_and_deduplicated(
    client: httpx2.Client, form_list_id: int
) -> None:
    path = f"/lists/{form_list_id}"
    ten = [f"https://{n}.example" for n in range(10)]
    twice = ["https://A.example", "https://a.example:443", "http://[::1]:8080"]
    for sent, kept in ((twice, ["https://a.example", "http://[::1]:8080"]), (ten, ten), ([], [])):
        assert data(client.patch(path, json={"redirect_origins": sent}))["redirect_origins"] == kept
        assert data(client.patch(path, json={"tagline": "Other"}))["redirect_origins"] == kept
        assert new_list(client, redirect_origins=sent)["redirect_origins"] == kept


def test_invalid_or_too_many_redirect_origins_are_rejected(
    client: httpx2.Client, form_list_id: int
) -> None:
    for sent in [[f"https://{n}.example" for n in range(11)], ["https://a.example/"], ["*"]]:
        reply = client.patch(f"/lists/{form_list_id}", json={"redirect_origins": sent})
        error = problem(reply, 422, "list.redirect_origins")
        assert error["errors"][0]["field"] == "body.redirect_origins"
        assert data(client.get(f"/lists/{form_list_id}"))["redirect_origins"] == []
