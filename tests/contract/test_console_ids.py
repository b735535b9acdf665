"""Tests that pages reject invalid ids and numbers in form fields."""

from collections.abc import Iterator

import httpx2
import pytest

from core.ids import MAX_UINT64
from devstack.harness.stack import Stack
from tests.support.http.replies import data
from tests.support.lists.subscribers import new_list
from tests.support.people.consoles import (
    OwnerAtConsole,
    at_console,
    at_operators_console,
    forms_of,
    read_error,
)
from tests.support.security import world as worlds
from tests.support.security.console_calls import CONSOLE_CALLS
from tests.support.security.world import World

# Python's ``int`` rejects more than 4,300 digits, but accepts a non-ASCII digit and an underscore.
MALFORMED_IDS = ("1" * 5_000, str(MAX_UINT64 + 1), str(MAX_UINT64), "0", "-1", "٣", "1_0")
_LIST_PATH = "/console/lists/{list_id}"
# The path of each form, its id field, and the values of its other required fields.
ID_FIELDS: list[tuple[str, str, dict[str, str]]] = [
    (f"{_LIST_PATH}/export", "segment_id", {"format": "csv"}),
    (f"{_LIST_PATH}/members/1/move", "list", {}),
    (
        "/console/developers/webhooks/new",
        "list_id",
        {"url": "http://127.0.0.1:9/", "type.subscription.created": "on"},
    ),
    ("/account/sessions", "session", {}),
    ("/account/factors", "remove", {}),
]


@pytest.fixture
def form_client(console: OwnerAtConsole) -> httpx2.Client:
    """An HTTP client that sends the same Origin header as a form on a console page."""
    return add_origin_header(console)


def add_origin_header(console: OwnerAtConsole) -> httpx2.Client:
    client = console.visitor.client
    client.headers["Origin"] = str(client.base_url).rstrip("/")
    return client


@pytest.mark.parametrize(("path", "field", "other_values"), ID_FIELDS)
def test_console_form_rejects_malformed_ids(
    *,
    console: OwnerAtConsole,
    form_client: httpx2.Client,
    path: str,
    field: str,
    other_values: dict[str, str],
) -> None:
    form_path = path.format(list_id=new_list(console.api)["id"])
    for malformed_id in MALFORMED_IDS:
        reply = form_client.post(form_path, data={**other_values, field: malformed_id})
        # For example, an invalid segment id must not make the form act on all members.
        assert reply.status_code in {404, 422}, (malformed_id[:30], reply.text)


@pytest.mark.parametrize("malformed_id", MALFORMED_IDS)
def test_malformed_id_in_console_form_revokes_no_key_and_selects_no_segment(
    console: OwnerAtConsole, form_client: httpx2.Client, malformed_id: str
) -> None:
    form = {"password": "x", f"end.{malformed_id}": "on", "shown": malformed_id}
    assert form_client.post("/account/password", data=form).status_code == 422
    members_path = f"/console/lists/{new_list(console.api)['id']}/members"
    assert console.visitor.get(members_path, segment=malformed_id).status_code < 500
    files = {"file": ("members.csv", b"email\r\n")}
    upload_form = {"kind": "members", "list_id": malformed_id}
    reply = form_client.post("/console/imports/new", data=upload_form, files=files)
    assert reply.status_code in {404, 422}, (malformed_id[:30], reply.text)


def test_malformed_id_in_operator_console_selects_no_text_and_no_user(stack: Stack) -> None:
    with at_operators_console(stack) as operator:
        for malformed_id in MALFORMED_IDS:
            form = {"kind": "list", "id": malformed_id, "version": "1"}
            reply = add_origin_header(operator).post("/console/operators/texts", data=form)
            assert reply.status_code == 303
            user_page = operator.visitor.get("/console/operators/users", user=malformed_id)
            assert user_page.status_code in {404, 422}, malformed_id[:30]


DIGITS = "1" * 5_000
# The pages with forms outside of the console.
OTHER_PAGES = (
    *("/account", "/account/password", "/account/email", "/account/factors"),
    *("/account/factors/app", "/account/factors/passkey", "/register", "/password/forgotten"),
    *("/s/{slug}", "/preferences/ask"),
)


@pytest.fixture(scope="module")
def number_world(stack: Stack) -> Iterator[World]:
    """An owner who has one item of every kind that a form can show."""
    world = worlds.build(stack)
    yield world
    world.client.close()


def read_forms(world: World, browser: httpx2.Client) -> dict[tuple[str, str], dict[str, str]]:
    """Map the path and a field of each form to the values of the form."""
    slug = data(world.client.get(f"/lists/{world.values['list_id']}"))["slug"]
    fields: dict[tuple[str, str], dict[str, str]] = {}
    replies = [
        call.send(browser, operation, world.values)
        for operation, call in CONSOLE_CALLS.items()
        if operation.startswith("GET") and call.own == 200 and not operation.endswith("/events")
    ]
    replies += [browser.get(path.format(slug=slug, **world.values)) for path in OTHER_PAGES]
    for reply in replies:
        if "text/html" in reply.headers.get("content-type", ""):
            for action, values in forms_of(reply):
                path = action or reply.request.url.path
                fields |= {(path, name): values for name in values if name != "csrf_token"}
    return fields


def test_thousands_of_digits_in_any_form_field_cause_no_internal_error(
    stack: Stack, number_world: World
) -> None:
    with at_console(stack, number_world.owner) as console:
        browser = add_origin_header(console)
        fields = read_forms(number_world, browser)
        assert len(fields) > 100
        paths = {path.rpartition("/")[2] for path, _ in fields}
        assert {"settings", "low-balance", "replay", "move", "export"} <= paths
        for (path, name), values in fields.items():
            reply = browser.post(path, data={**values, name: DIGITS})
            if reply.status_code == 405:
                reply = browser.get(path, params={**values, name: DIGITS})
            assert reply.status_code < 500, (path, name, reply.text)


@pytest.mark.parametrize("limit", [DIGITS, "-1", "21", "99999999999999999999", "1.5", "٣", "x"])
def test_wrong_number_of_soft_bounces_is_shown_as_an_error_next_to_the_field(
    console: OwnerAtConsole, limit: str
) -> None:
    mailing_list = new_list(console.api)
    path = f"/console/lists/{mailing_list['id']}/settings"
    reply = console.send(path, soft_bounce_limit=limit)
    assert reply.status_code == 422
    assert read_error(reply.text, "soft_bounce_limit")
    assert data(console.api.get(f"/lists/{mailing_list['id']}"))["soft_bounce_limit"] == 5
    console.do(path, soft_bounce_limit=" 20 ")
    assert data(console.api.get(f"/lists/{mailing_list['id']}"))["soft_bounce_limit"] == 20
