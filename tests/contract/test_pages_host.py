"""Tests of a separate host for readers' pages, where nobody can log in."""

from collections.abc import Iterator

import httpx2
import pytest

from core.errors import SettingsError
from core.settings.given_settings import read_values
from core.settings.product_settings import Settings
from devstack.harness.stack import Stack
from services.accounts.mailed_tokens import Purpose
from tests.support.http.pages import read_heading, read_text
from tests.support.http.replies import data
from tests.support.lists.people_on_lists import Subscriber, subscribe
from tests.support.lists.subscribers import new_address, new_list
from tests.support.people.consoles import at_console
from tests.support.people.visiting import SESSION_COOKIE, read_hidden_fields

PAGES_URL = "http://pages.example"
ONE_CLICK = {"List-Unsubscribe": "One-Click"}


@pytest.fixture(scope="module")
def api_with_pages_host(stack_without_workers: Stack) -> Iterator[Stack]:
    """An API process whose pages for readers have a separate host name."""
    with stack_without_workers.run_second_api(PRESSROOM_PAGES_URL=PAGES_URL) as second_api:
        yield second_api


@pytest.fixture
def main_host_client(api_with_pages_host: Stack) -> Iterator[httpx2.Client]:
    """An HTTP client that calls an API process by its main host name."""
    with api_with_pages_host.client() as client:
        yield client


@pytest.fixture
def pages_host_client(api_with_pages_host: Stack) -> Iterator[httpx2.Client]:
    """An HTTP client that calls an API process by the host name of its pages for readers."""
    with api_with_pages_host.client() as client:
        client.headers["Host"] = "pages.example"
        yield client


@pytest.fixture
def subscriber_without_workers(
    stack_without_workers: Stack, client_without_workers: httpx2.Client
) -> Subscriber:
    """A subscriber of a mailing list on the test stack that runs no workers."""
    return subscribe(stack_without_workers, new_list(client_without_workers)["id"])


def test_reader_pages_redirect_from_the_main_host_to_the_pages_host(
    main_host_client: httpx2.Client,
    pages_host_client: httpx2.Client,
    client_without_workers: httpx2.Client,
    subscriber_without_workers: Subscriber,
) -> None:
    slug = data(client_without_workers.get(f"/lists/{subscriber_without_workers.list_id}"))["slug"]
    trace_query = f"trace_id={subscriber_without_workers.trace_id}"
    paths = (
        *(f"/s/{slug}", f"/s/{slug}/report", f"/preferences/ask?list={slug}"),
        *(
            f"/subscribed?list={subscriber_without_workers.list_id}",
            f"/unsubscribe?{trace_query}",
            f"/report?{trace_query}",
        ),
        subscriber_without_workers.confirm_url().removeprefix(
            subscriber_without_workers.stack.api_url
        ),
    )
    for path in paths:
        redirect = main_host_client.get(path)
        assert (redirect.status_code, redirect.headers["location"]) == (308, PAGES_URL + path)
        page = pages_host_client.get(path)
        assert page.status_code == 200, page.text
        cookie = page.headers.pop("set-cookie", None)
        # Only the report form sets a cookie, which ties the form to the browser.
        assert (cookie is not None) == path.endswith("/report")
        assert read_heading(page)
        assert str(main_host_client.base_url) not in page.text
    # The main host never returns a page with an owner's texts, even to an invalid form.
    for path in (f"/s/{slug}", f"/subscriptions/{subscriber_without_workers.list_id}"):
        assert main_host_client.post(path, data={"email": "nobody"}).status_code == 308


def test_pages_host_offers_no_login_and_no_api_and_ignores_credentials(
    stack_without_workers: Stack,
    main_host_client: httpx2.Client,
    pages_host_client: httpx2.Client,
    client_without_workers: httpx2.Client,
) -> None:
    key_headers = {"Authorization": client_without_workers.headers["Authorization"]}
    with at_console(stack_without_workers) as owner:
        session_headers = {"Cookie": f"{SESSION_COOKIE}={owner.visitor.cookie}"}
    list_id = new_list(client_without_workers)["id"]
    for path in ("/", "/login", "/register", "/console", "/account", "/docs", "/openapi.json"):
        assert pages_host_client.get(path).status_code == 404, path
    for path in ("/users/me", f"/lists/{list_id}", "/lists", "/media/a.webp", "/metrics"):
        for credentials in (key_headers, session_headers):
            assert pages_host_client.get(path, headers=credentials).status_code == 404, path
    assert main_host_client.get("/login").status_code == 200
    assert main_host_client.get("/users/me", headers=key_headers).status_code == 200
    # Credentials have no effect on a form that strangers can send.
    form = {"email": new_address()}
    reply = pages_host_client.post(
        f"/subscriptions/{list_id}", data=form, headers={"Authorization": "Bearer no"}
    )
    assert (reply.status_code, reply.headers["location"]) == (
        303,
        f"{PAGES_URL}/subscribed?list={list_id}",
    )


def test_reader_forms_and_one_click_unsubscribe_work_on_the_pages_host(
    stack_without_workers: Stack,
    main_host_client: httpx2.Client,
    pages_host_client: httpx2.Client,
    client_without_workers: httpx2.Client,
) -> None:
    list_id = new_list(client_without_workers)["id"]
    embedded_form = data(
        main_host_client.get(f"/lists/{list_id}/embed", headers=client_without_workers.headers)
    )
    assert embedded_form["action"] == f"{PAGES_URL}/subscriptions/{list_id}"
    assert embedded_form["page_url"].startswith(f"{PAGES_URL}/s/")
    assert (
        data(pages_host_client.post(f"/subscriptions/{list_id}", json={"email": new_address()}))
        == 1
    )
    email = new_address()
    sign_up_reply = pages_host_client.post(f"/subscriptions/{list_id}", data={"email": email})
    [(name, value)] = sign_up_reply.cookies.items()
    cookie = {"Cookie": f"{name}={value}"}
    page = pages_host_client.get(f"/subscribed?list={list_id}", headers=cookie)
    assert email in read_text(page)
    # Programs can still call the API at its main host.
    assert (
        data(main_host_client.post(f"/subscriptions/{list_id}", json={"email": new_address()})) == 1
    )
    # One-click requests work on both hosts, because older mails link to the main host.
    for host_client in (pages_host_client, main_host_client):
        subscriber = subscribe(stack_without_workers, list_id)
        query = {"trace_id": subscriber.trace_id}
        assert host_client.post("/unsubscribe", params=query, data=ONE_CLICK).status_code == 200
        assert subscriber.read_status() == ("active", False)
        subscriber = subscribe(stack_without_workers, list_id)
        query = {"trace_id": subscriber.trace_id}
        reply = host_client.post(f"/subscriptions/{list_id}/delete", params=query, data=ONE_CLICK)
        assert reply.status_code == 200, reply.text
        assert subscriber.read_status() == ("active", False)


def test_abuse_report_form_on_the_pages_host_requires_its_browser_cookie(
    stack_without_workers: Stack,
    pages_host_client: httpx2.Client,
    subscriber_without_workers: Subscriber,
) -> None:
    [(slug,)] = stack_without_workers.query(
        "SELECT slug FROM lists WHERE id = %s", subscriber_without_workers.list_id
    )
    path = f"/s/{slug}/report"
    form = read_hidden_fields(pages_host_client.get(path))
    pages_host_client.cookies.clear()
    assert pages_host_client.post(path, data=form).status_code == 403
    assert (
        pages_host_client.post(
            path, data=read_hidden_fields(pages_host_client.get(path))
        ).status_code
        == 303
    )


def test_preferences_session_remains_on_the_pages_host(
    pages_host_client: httpx2.Client, subscriber_without_workers: Subscriber
) -> None:
    token = subscriber_without_workers.mailed_token(Purpose.OPEN_PREFERENCES)
    link = f"/preferences/open?token={token}"
    reply = pages_host_client.post(link, data=read_hidden_fields(pages_host_client.get(link)))
    assert (reply.status_code, reply.headers["location"]) == (303, f"{PAGES_URL}/preferences")
    cookie = reply.headers["set-cookie"].split(";")[0]
    page = pages_host_client.get(
        "/preferences", headers={"Cookie": f"{SESSION_COOKIE}=x; {cookie}"}
    )
    assert read_heading(page) == "Your subscriptions"
    assert f'action="{PAGES_URL}/preferences"' in page.text


@pytest.mark.parametrize(
    "url", ["https://api.example.com:8443", "http://pages.example", "https://pages.example/below"]
)
def test_pages_url_must_have_another_host_and_the_same_scheme_as_the_main_url(
    stack_without_workers: Stack, url: str
) -> None:
    url_settings = {"public_url": "https://api.example.com", "pages_url": url}
    with pytest.raises(SettingsError, match="PRESSROOM_PAGES_URL: must have the scheme of"):
        read_values(
            Settings, {**stack_without_workers.settings().model_dump(include=set()), **url_settings}
        )
