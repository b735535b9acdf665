"""Owners are apart in the console: every page and form, in another owner's browser and in none."""

from collections.abc import Iterator

import httpx
import pytest

from api.access.browsers import CSRF_HEADER
from api.app import create_app
from api.openapi import api_routes
from core.settings import Settings
from services.access import sessions
from tests.oauth import log_in
from tests.security import world as worlds
from tests.security.calls import Call
from tests.security.console_calls import CONSOLE_CALLS
from tests.security.world import World, belongings, settled
from tests.stack import Owner, Stack
from tests.upkeep import resting_upkeep
from tests.visiting import SESSION

ASSETS = "GET /console/assets/{name}"
each_page = pytest.mark.parametrize(
    "operation", [operation for operation in CONSOLE_CALLS if operation != ASSETS]
)


@pytest.fixture(scope="module")
def world(stack: Stack) -> Iterator[World]:
    """Owner A."""
    made = worlds.build(stack)
    made.values |= {"as_whom": "a"}
    settled(stack)
    with resting_upkeep(stack):
        yield made
    made.client.close()


def browser_of(stack: Stack, owner: Owner) -> httpx.Client:
    """A browser in which the owner is logged in, and whose requests come from pages of ours."""
    browser = log_in(stack, owner).browser
    cookie = browser.cookies[SESSION]
    browser.headers[CSRF_HEADER] = sessions.csrf_token(stack.resources.keyring, cookie)
    return browser


@pytest.fixture(scope="module")
def own(stack: Stack, world: World) -> Iterator[httpx.Client]:
    with browser_of(stack, world.owner) as browser:
        yield browser


@pytest.fixture(scope="module")
def rival(stack: Stack) -> Iterator[httpx.Client]:
    """Owner B's browser."""
    with browser_of(stack, stack.new_owner()) as browser:
        yield browser


def is_of_operators(operation: str) -> bool:
    """Whether it is a page that is none to an owner."""
    return "/console/operators" in operation


def sent(world: World, client: httpx.Client, operation: str, as_whom: str) -> httpx.Response:
    call: Call = CONSOLE_CALLS[operation]
    return call.send(client, operation, world.values | {"as_whom": as_whom})


def test_every_page_and_form_of_the_console_is_called_here() -> None:
    app = create_app(Settings.model_construct())
    there = {
        f"{method} {route.path_format}"
        for route in api_routes(app)
        for method in route.methods or ()
        if (route.path_format or "").startswith("/console")
    }
    assert set(CONSOLE_CALLS) == there


@each_page
def test_another_owner_gets_and_changes_nothing(
    world: World, rival: httpx.Client, operation: str
) -> None:
    before = belongings(world)
    reply = sent(world, rival, operation, "b")
    assert reply.status_code == CONSOLE_CALLS[operation].others, reply.text
    is_hidden = "{" in operation or is_of_operators(operation)
    assert (reply.status_code == 404) == is_hidden
    assert world.mark not in reply.text
    assert str(world.owner.user_id) not in reply.text
    assert belongings(world) == before


@each_page
def test_who_is_not_logged_in_is_led_to_the_login(
    world: World, stranger: httpx.Client, operation: str
) -> None:
    before = belongings(world)
    reply = sent(world, stranger, operation, "nobody")
    assert reply.status_code == 303
    assert "/login?next=%2Fconsole" in reply.headers["location"]
    assert belongings(world) == before


@each_page
def test_a_form_of_another_site_changes_nothing(
    world: World, own: httpx.Client, operation: str
) -> None:
    if operation.startswith("GET"):
        pytest.skip("a page is no form")
    before = belongings(world)
    call = CONSOLE_CALLS[operation]
    values = world.values | {"as_whom": "forged"}
    reply = call.send(own, operation, values, **{CSRF_HEADER: "x"})
    assert reply.status_code == (404 if is_of_operators(operation) else 403), reply.text
    assert belongings(world) == before


@each_page
def test_the_owner_can_do_all_of_it(world: World, own: httpx.Client, operation: str) -> None:
    # So that the refusals above are of the person, and not of a request that fails for anybody.
    reply = sent(world, own, operation, "a")
    assert reply.status_code == CONSOLE_CALLS[operation].own, reply.text
