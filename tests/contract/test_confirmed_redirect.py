"""Tests of the redirect to a page of the list's owner after a person has confirmed."""

import html
import re
from collections.abc import Callable

import httpx2
import pytest

from devstack.harness.stack import Stack
from tests.support.http.pages import follow_redirect, read_heading
from tests.support.http.replies import data, problem
from tests.support.lists.people_on_lists import Subscriber, subscribe_pending
from tests.support.lists.sign_up_forms import OWNER_ORIGIN
from tests.support.lists.subscribers import new_list, new_slug
from tests.support.security.return_urls import HOSTILE_RETURN_URLS, SHOP

WELCOME_URL = f"{OWNER_ORIGIN}/welcome?from=list&x=1#top"
# The settings of the test stack allow this origin for all lists.
OPERATOR_URL = f"https://{SHOP}/welcome"


@pytest.fixture
def make_pending(stack: Stack, client: httpx2.Client) -> Callable[..., Subscriber]:
    """A function that creates a list with the given fields, and a pending subscription to it."""

    def make(**fields: object) -> Subscriber:
        return subscribe_pending(stack, new_list(client, confirm_required=True, **fields)["id"])

    return make


def confirm(stranger: httpx2.Client, subscriber: Subscriber) -> httpx2.Response:
    reply = stranger.post(subscriber.confirm_url())
    assert reply.status_code == 303, reply.text
    return reply


def test_confirming_leads_to_the_page_of_the_owner(
    stranger: httpx2.Client, make_pending: Callable[..., Subscriber]
) -> None:
    subscriber = make_pending(redirect_origins=[OWNER_ORIGIN], confirmed_redirect=WELCOME_URL)
    url = subscriber.confirm_url()
    form_page = stranger.get(url)
    assert read_heading(form_page) == "Confirm your subscription"
    # After a browser has submitted the form of this page, the browser follows the redirect in the
    # response only if the page's content security policy allows the redirect.
    assert "form-action 'self' https:" in form_page.headers["content-security-policy"]
    reply = stranger.post(url)
    assert (reply.status_code, reply.headers["location"]) == (303, WELCOME_URL)
    assert reply.headers["referrer-policy"] == "no-referrer"
    assert subscriber.read_status() == ("active", True)
    # After the confirmation, the mailed link shows a page with a link to the owner's page.
    repeated_page = stranger.get(url)
    assert read_heading(repeated_page) == "You’re subscribed"
    assert f'href="{html.escape(WELCOME_URL)}"' in repeated_page.text
    assert "Continue to owner.example" in repeated_page.text


@pytest.mark.parametrize("origins", [[], [OWNER_ORIGIN]])
def test_confirming_shows_a_page_of_pressroom_if_the_list_has_no_page(
    stranger: httpx2.Client, make_pending: Callable[..., Subscriber], *, origins: list[str]
) -> None:
    subscriber = make_pending(redirect_origins=origins)
    page = follow_redirect(stranger, confirm(stranger, subscriber))
    assert read_heading(page) == "You’re subscribed"
    # The page contains links to the owner's website and to the list's sign-up page.
    websites = re.findall(r'href="([^"]*)"[^>]*>Continue to owner.example</a>', page.text)
    assert websites == origins
    [path] = re.findall(r'<p class="list"><a href="[^"]*(/s/[^"]*)">', page.text)
    assert stranger.get(path).status_code == 200
    assert "form-action 'self';" in f"{page.headers['content-security-policy']};"


def test_confirmed_redirect_may_have_an_origin_that_the_operator_allows(
    client: httpx2.Client, stranger: httpx2.Client, make_pending: Callable[..., Subscriber]
) -> None:
    subscriber = make_pending()
    path = f"/lists/{subscriber.list_id}"
    changed = data(client.patch(path, json={"confirmed_redirect": OPERATOR_URL}))
    assert changed["confirmed_redirect"] == OPERATOR_URL
    assert confirm(stranger, subscriber).headers["location"] == OPERATOR_URL
    assert data(client.patch(path, json={"confirmed_redirect": None}))["confirmed_redirect"] is None


def test_confirmed_redirect_with_another_origin_or_a_hostile_url_is_rejected(
    client: httpx2.Client,
) -> None:
    fields = {"redirect_origins": [OWNER_ORIGIN], "confirmed_redirect": WELCOME_URL}
    mailing_list = new_list(client, **fields)
    similar_urls = [
        f"{OWNER_ORIGIN}@evil.example/",
        f"https://a:b@{OWNER_ORIGIN.partition('//')[2]}/",
        f"{OWNER_ORIGIN}.evil.example/",
        f"{OWNER_ORIGIN}:444/",
        "https://evil.example/",
        f"{OWNER_ORIGIN}/\r\nLocation: https://evil.example",
        f"{OWNER_ORIGIN}/\r\n",
        f"{OWNER_ORIGIN}/%0d%0aLocation:x",
        "javascript:alert(1)",
        "",
        f"{OWNER_ORIGIN}/".ljust(2049, "x"),
    ]
    # Skip URLs that top-ups refuse only because of the parameter names in the query.
    hostile_urls = [url for url in HOSTILE_RETURN_URLS if not url.startswith(f"https://{SHOP}/?")]
    for url in [*similar_urls, *(each for each in hostile_urls[::20] if "\0" not in each)]:
        body = {"title": "A list", "slug": new_slug(), **fields, "confirmed_redirect": url}
        for reply in (
            client.patch(f"/lists/{mailing_list['id']}", json={"confirmed_redirect": url}),
            client.post("/lists", json=body),
        ):
            error = problem(reply, 422, "list.confirmed_redirect")
            assert error["errors"][0]["field"] == "body.confirmed_redirect"
    long_url = f"{OWNER_ORIGIN}/".ljust(2048, "x")
    for url in (long_url, WELCOME_URL):
        changed = data(
            client.patch(f"/lists/{mailing_list['id']}", json={"confirmed_redirect": url})
        )
        assert changed["confirmed_redirect"] == url


def test_origin_of_the_confirmed_redirect_can_only_be_removed_together_with_the_redirect(
    client: httpx2.Client,
) -> None:
    mailing_list = new_list(client, redirect_origins=[OWNER_ORIGIN], confirmed_redirect=WELCOME_URL)
    path = f"/lists/{mailing_list['id']}"
    problem(client.patch(path, json={"redirect_origins": []}), 422, "list.confirmed_redirect")
    assert data(client.get(path))["redirect_origins"] == [OWNER_ORIGIN]
    changes: dict[str, object] = {"redirect_origins": [], "confirmed_redirect": None}
    assert data(client.patch(path, json=changes))["confirmed_redirect"] is None


def test_confirming_ignores_a_redirect_that_the_operator_no_longer_allows(
    stack: Stack,
    client: httpx2.Client,
    stranger: httpx2.Client,
    make_pending: Callable[..., Subscriber],
) -> None:
    subscriber = make_pending()
    set_url = "UPDATE lists SET confirmed_redirect = %s WHERE id = %s"
    stack.query(set_url, "https://former.example/", subscriber.list_id)
    page = follow_redirect(stranger, confirm(stranger, subscriber))
    assert read_heading(page) == "You’re subscribed"
    assert "former.example" not in page.text + page.headers["content-security-policy"]
    # The stored redirect URL is no longer allowed, but the owner can still change other settings of
    # the list.
    path = f"/lists/{subscriber.list_id}"
    assert data(client.patch(path, json={"tagline": "Other"}))["tagline"] == "Other"
