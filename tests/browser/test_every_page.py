"""Tests that every page is accessible, fits a narrow screen and works without scripts.

`make test` checks only the pages in `PAGES_OF_FAST_TIER`. In the full tier, the tests check all
pages, and also check that each page can be used with the keyboard and without scripts.
"""

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from api.console.navigation import OPERATORS_PAGE
from core.scopes import SCOPE_EXPLANATIONS
from devstack.harness.stack import Owner, Stack
from services.accounts.mailed_tokens import Purpose
from tests.support.browser.accessibility import (
    IS_THOROUGH,
    LONG_WORD,
    NARROW_WIDTH,
    WIDE_VIEWPORT,
    find_hidden_entries,
    find_protruding_elements,
    fits_width,
    require_accessible,
)
from tests.support.browser.consoles import log_in_browser
from tests.support.browser.keyboards import Keyboard
from tests.support.browser.readers import make_list
from tests.support.credits.settled_orders import build_payment_evidence, new_order, settle
from tests.support.http.replies import data
from tests.support.imports.bulk import upload
from tests.support.imports.workbooks import workbook
from tests.support.lists.people_on_lists import Subscriber, new_list, subscribe, subscribe_pending
from tests.support.people.consoles import at_operators_console
from tests.support.people.oauth import log_in, register
from tests.support.people.visiting import new_account, user_id_of
from tests.support.security import world as worlds
from tests.support.security.console_calls import CONSOLE_CALLS
from tests.support.security.world import World, await_jobs
from tests.support.senders.mailings import new_mailing

PageOpener = Callable[..., Page]
SCOPES = tuple(SCOPE_EXPLANATIONS)
LONG_NAME = LONG_WORD * 2
LONG_ADDRESS = "maria-magdalena.oberhuber.kreuzberger@verwaltung.gemeinde-musterstadt.example"
SCREENSHOTS_FOLDER = Path(__file__).parents[2] / "build" / "screenshots"
TAKES_SCREENSHOTS = IS_THOROUGH or os.environ.get("PRESSROOM_PICTURES") == "1"
_BACKGROUND_COLOUR = "getComputedStyle(document.body).backgroundColor"


@dataclass(frozen=True)
class Visit:
    """A page that the tests open, and the visitor who opens the page.

    Attributes:
        visitor: the key of `users`, or ``reader`` or ``nobody``.
        path: a path with parameters, as in `CONSOLE_CALLS`.
        value_names: maps a parameter to the name of its value, if the two names differ.
    """

    visitor: str
    path: str
    status: int = 200
    value_names: dict[str, str] | None = None


def _console_visits() -> Iterator[tuple[str, Visit]]:
    for operation, call in CONSOLE_CALLS.items():
        method, _, path = operation.partition(" ")
        is_page = "/assets/" not in path and not path.endswith("/events")
        if method == "GET" and is_page and (call.own == 200 or OPERATORS_PAGE.path in path):
            visitor = "operator" if OPERATORS_PAGE.path in path else "owner"
            yield path, Visit(visitor, path, value_names=call.values)


VISITS = {
    **dict(_console_visits()),
    "a previewed import": Visit("owner", "/console/imports/{previewed_import_id}"),
    "an order in review": Visit("operator", "/console/operators/orders/{doubtful_order_id}"),
    "start page": Visit("nobody", "/"),
    # Pages for the readers of a list
    "sign-up": Visit("nobody", "/s/{slug}"),
    "report of a sign-up page": Visit("nobody", "/s/{slug}/report"),
    "unsubscribe": Visit("nobody", "/unsubscribe?trace_id={reader}"),
    "unsubscribe, not confirmed": Visit("nobody", "/unsubscribe?trace_id={pending}"),
    "unsubscribe, broken link": Visit("nobody", "/unsubscribe?trace_id=cut-off", 403),
    "engagement": Visit("nobody", "/engagement?trace_id={reader}"),
    "preferences, engagement": Visit("reader", "/preferences/engagement?list={long_list_id}"),
    "confirm": Visit("nobody", "/confirm?token={confirmation_token}"),
    "report": Visit("nobody", "/report?trace_id={reader}"),
    "preferences link form": Visit("nobody", "/preferences/ask?list={long_list_id}"),
    "preferences link requested": Visit("nobody", "/preferences/ask?sent=yes"),
    "open preferences": Visit("nobody", "/preferences/open?token={preferences_token}"),
    "preferences": Visit("reader", "/preferences"),
    "preferences, answers": Visit("reader", "/preferences/answers?list={long_list_id}"),
    "preferences, data": Visit("reader", "/preferences/data"),
    "preferences, erase": Visit("reader", "/preferences/erase"),
    # Pages of a person's account
    "login": Visit("nobody", "/login"),
    "login again": Visit("person", "/login?again=yes&next=/console/developers/keys/new"),
    "register": Visit("nobody", "/register"),
    "register, sent": Visit("nobody", "/register?sent=yes"),
    "forgotten password": Visit("nobody", "/password/forgotten"),
    "account": Visit("person", "/account"),
    "account, password": Visit("person", "/account/password"),
    "account, e-mail": Visit("person", "/account/email"),
    "account, events": Visit("person", "/account/events"),
    "account, factors": Visit("person", "/account/factors"),
    "account, app": Visit("person", "/account/factors/app"),
    "account, passkey": Visit("person", "/account/factors/passkey"),
    "consent": Visit("person", "{consent}"),
    "consent, invalid": Visit("person", "{invalid_consent}", 400),
    "connected app with a long name": Visit("person", "/console/developers/access"),
}
# `make test` checks only these pages, which include a page with a table and a page with a form.
PAGES_OF_FAST_TIER = {
    *("/console", "/console/lists/{list_id}/members", "/console/imports/{import_id}"),
    *("/console/lists/{list_id}/public", "/console/images/{hash_id}"),
    *("/console/operators", "sign-up", "preferences", "login", "consent"),
}


@pytest.fixture(scope="module")
def sample_account(stack: Stack) -> Iterator[World]:
    """An account that owns one object of each kind that Pressroom's pages show."""
    world = worlds.build(stack)
    _fill_list(world)
    yield world
    world.client.close()


def _fill_list(world: World) -> None:
    """Add long texts, delivery figures, and a member with a long address to the list."""
    client = world.client
    list_id = world.values["list_id"]
    texts = dict.fromkeys(("sign_up_text", "thanks_text", "consent_wording"), LONG_WORD * 4)
    branding = {
        "colour": "#0f5c6e",
        "logo_hash_id": world.values["hash_id"],
        "sender_name": LONG_WORD[:40],
    }
    origins = [f"https://www.{LONG_WORD[:40].lower()}.example"]
    data(client.patch(f"/lists/{list_id}", json={**texts, **branding, "redirect_origins": origins}))
    figures = {
        "delivered": 900_000,
        "hard_bounced": 60_000,
        "soft_bounced": 40_000,
        "complained": 3,
    }
    new_mailing(world.stack, int(list_id), rows=1_000_000, figures=figures, label=LONG_WORD * 2)
    body = {"name": LONG_NAME, "tags": [LONG_WORD[:40], "harbour", "press"]}
    data(client.put(f"/lists/{list_id}/members/{LONG_ADDRESS}", json=body), 200, 201)


@pytest.fixture(scope="module")
def operator(stack: Stack) -> Iterator[Owner]:
    with at_operators_console(stack) as operator_console:
        yield operator_console.owner


@pytest.fixture(scope="module")
def owner_with_long_name(stack: Stack) -> Owner:
    """A user whose name and whose program's name are wider than the browser window."""
    email = new_account(stack, name=LONG_WORD * 4)
    owner = Owner(user_id_of(stack, email), email, "")
    program = register(stack, scopes=SCOPES, public=True, name=LONG_NAME)
    person = log_in(stack, owner)
    with person.browser:
        program.tokens(person, *SCOPES)
    return owner


@pytest.fixture(scope="module")
def member_of_long_list(stack: Stack, sample_account: World) -> Subscriber:
    """A subscriber of a list with a very long title, fields, a wording, a colour and a logo."""
    return subscribe(stack, make_list(sample_account.client, LONG_WORD * 4))


@pytest.fixture(scope="module")
def path_values(
    stack: Stack, sample_account: World, operator: Owner, member_of_long_list: Subscriber
) -> dict[str, object]:
    client = sample_account.client
    pending = subscribe_pending(stack, new_list(client, LONG_WORD * 4, confirm_required=True))
    rows = [(f"{number}@example.com", f"R {number}", "Rome") for number in range(20)]
    header = ["Mail", "Who", "Home town"]
    # Excel permits sheet names of up to 31 characters.
    file = workbook({"S" * 31: [header, *rows, ("not an address", "Nobody", "Oslo")], "Notes": []})
    list_id = sample_account.values["dst_list_id"]
    preview_job = data(upload(client, list_id, file, "members.xlsx", dry_run="1"))
    doubtful_order = new_order(stack, operator.user_id)
    settle(stack, doubtful_order, replace(build_payment_evidence(doubtful_order), amount_minor=499))
    program = register(stack, scopes=SCOPES, public=True, name=LONG_NAME)
    await_jobs(stack)
    return {
        **sample_account.values,
        "previewed_import_id": preview_job["result"]["import_id"],
        "doubtful_order_id": doubtful_order.order_id,
        "long_list_id": member_of_long_list.list_id,
        "slug": data(client.get(f"/lists/{member_of_long_list.list_id}"))["slug"],
        "reader": member_of_long_list.trace_id,
        "pending": pending.trace_id,
        "confirmation_token": pending.mailed_token(),
        "preferences_token": member_of_long_list.mailed_token(Purpose.OPEN_PREFERENCES),
        "consent": program.request(*SCOPES),
        "invalid_consent": program.request(redirect_uri="https://evil.example/"),
    }


@pytest.fixture(scope="module")
def users(sample_account: World, operator: Owner, owner_with_long_name: Owner) -> dict[str, Owner]:
    return {"owner": sample_account.owner, "operator": operator, "person": owner_with_long_name}


@pytest.fixture(scope="module")
def page_of(
    browser: Browser, stack: Stack, users: dict[str, Owner], member_of_long_list: Subscriber
) -> Iterator[PageOpener]:
    """A function that returns the browser page of a user, a subscriber or an anonymous visitor."""
    pages: dict[tuple[str, bool], Page] = {}

    def open_page_of(visitor: str, *, scripts: bool = True) -> Page:
        if (visitor, scripts) not in pages:
            context = browser.new_context(java_script_enabled=scripts)
            pages[visitor, scripts] = page = context.new_page()
            if visitor in users:
                log_in_browser(page, stack, users[visitor].user_id)
            elif visitor == "reader":
                token = member_of_long_list.mailed_token(Purpose.OPEN_PREFERENCES)
                page.goto(f"{stack.api_url}/preferences/open?token={token}")
                page.get_by_role("button", name="Open my subscriptions").click()
                expect(page.get_by_role("button", name="Close")).to_be_visible()
        return pages[visitor, scripts]

    yield open_page_of
    for page in pages.values():
        page.context.close()


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name, marks=pytest.mark.tier(*["fast"] * (name in PAGES_OF_FAST_TIER), "browser")
        )
        for name in VISITS
    ],
)
def test_every_page_is_accessible_and_fits_a_narrow_screen(
    stack: Stack, page_of: PageOpener, path_values: dict[str, object], *, name: str
) -> None:
    visit = VISITS[name]
    renamed_values = {
        path_name: path_values[value_name]
        for path_name, value_name in (visit.value_names or {}).items()
    }
    url = stack.api_url + visit.path.format(**path_values | renamed_values)
    page = page_of(visit.visitor)
    page.set_viewport_size(WIDE_VIEWPORT)
    page.emulate_media(color_scheme="light")
    response = page.goto(url)
    assert response is not None
    assert response.status == visit.status
    heading = page.get_by_role("heading", level=1).inner_text()
    light_colour = page.evaluate(_BACKGROUND_COLOUR)
    # Open all collapsed sections, so that they are checked too.
    page.evaluate("document.querySelectorAll('details').forEach(e => e.open = true)")
    require_accessible(page)
    screenshot_name = re.sub(r"[^a-z]+", "-", re.sub(r"{\w+}", "one", name).lower()).strip("-")
    _take_screenshot(page, screenshot_name)
    page.set_viewport_size({"width": NARROW_WIDTH, "height": 640})
    page.emulate_media(color_scheme="dark")
    assert page.evaluate(_BACKGROUND_COLOUR) != light_colour
    require_accessible(page)
    assert fits_width(page)
    assert find_protruding_elements(page) == []
    page.reload()
    assert find_hidden_entries(page) == []
    _take_screenshot(page, f"{screenshot_name}-narrow-dark")
    if not IS_THOROUGH:
        return
    # The Tab key reaches each control. The first control on a page of the console is a link that
    # skips the navigation.
    controls = Keyboard(page).walk()
    assert not visit.path.startswith("/console") or controls[0] == "a “Skip to content”"
    page_without_scripts = page_of(visit.visitor, scripts=False)
    page_without_scripts.goto(url)
    expect(page_without_scripts.get_by_role("heading", level=1)).to_have_text(heading)


def test_address_in_a_narrow_table_of_members_is_shown_in_full_next_to_its_checkbox(
    stack: Stack, page_of: PageOpener, path_values: dict[str, object]
) -> None:
    page = page_of("owner")
    width = 360
    page.set_viewport_size({"width": width, "height": 640})
    page.goto(f"{stack.api_url}/console/lists/{path_values['list_id']}/members")
    row = page.get_by_role("row").filter(has_text=LONG_ADDRESS)
    address = row.get_by_role("link").bounding_box()
    box = row.get_by_role("checkbox").bounding_box()
    assert address
    assert box
    assert box["x"] + box["width"] <= address["x"]
    assert address["x"] + address["width"] <= width
    # If the page shortened the long address, the address would end in an ellipsis.
    style = "link => getComputedStyle(link).textOverflow"
    assert row.get_by_role("link").evaluate(style) == "clip"


def _take_screenshot(page: Page, name: str) -> None:
    """Save a screenshot for a visual check, if screenshots are enabled."""
    if TAKES_SCREENSHOTS:
        page.screenshot(path=SCREENSHOTS_FOLDER / f"{name}.png", full_page=True)
