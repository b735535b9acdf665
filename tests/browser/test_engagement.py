"""Browser tests of the pages that ask readers whether a list may record opens and clicks."""

import httpx2
import pytest
from playwright.sync_api import Page, expect

from devstack.harness.stack import Stack
from tests.support.browser.accessibility import (
    OpenPage,
    find_protruding_elements,
    fits_width,
    require_accessible,
)
from tests.support.http.replies import data
from tests.support.lists.people_on_lists import Subscriber, subscribe
from tests.support.lists.subscribers import (
    await_mails,
    new_address,
    new_list,
    read_confirmation_token,
    require_member,
)

WIDTH = 360
TITLE = "The Morning Letter"


@pytest.fixture(params=["en", "de"])
def narrow_page(request: pytest.FixtureRequest, open_page: OpenPage) -> Page:
    """A narrow page without scripts, in English or German."""
    viewport = {"width": WIDTH, "height": 800}
    return open_page("about:blank", scripts=False, viewport=viewport, locale=request.param)


def require_narrow(page: Page) -> None:
    assert fits_width(page, WIDTH)
    assert find_protruding_elements(page) == []


@pytest.mark.tier("browser")
def test_reader_signs_up_with_a_yes_and_withdraws_it(
    stack: Stack, client: httpx2.Client, narrow_page: Page
) -> None:
    page = narrow_page
    asking = new_list(client, title=TITLE, engagement="consent", confirm_required=True)
    email = new_address()
    page.goto(f"{stack.api_url}/s/{asking['slug']}")
    box = page.locator('input[name="engagement"]')
    expect(box).not_to_be_checked()
    require_narrow(page)
    page.locator('input[name="email"]').fill(email)
    box.check()
    page.locator("form button").last.click()
    [mail] = await_mails(stack, email)
    page.goto(f"{stack.api_url}/confirm?token={read_confirmation_token(mail)}")
    expect(box).to_be_checked()
    require_narrow(page)
    page.locator("form button").click()
    expect(page.locator("form")).to_have_count(0)
    member = require_member(client, asking["id"], email)
    assert member["engagement_choice"]["answer"] == "yes"
    reader = Subscriber(stack, int(asking["id"]), int(member["user_id"]), email)
    page.goto(reader.unsubscribe_url)
    require_narrow(page)
    page.locator('footer a[href^="engagement"]').click()
    expect(page.locator("[role=status]")).to_have_count(1)
    require_narrow(page)
    page.locator('button[value="no"]').click()
    expect(page.locator('button[value="yes"]')).to_have_count(1)
    expect(page.locator('button[value="no"]')).to_have_count(0)
    path = f"/lists/{asking['id']}/members/{reader.user_id}"
    assert data(client.get(path))["engagement_choice"]["answer"] == "no"


@pytest.mark.tier("browser")
@pytest.mark.parametrize("mode", ["consent", "all"])
def test_pages_that_ask_are_accessible(
    stack: Stack, client: httpx2.Client, open_page: OpenPage, mode: str
) -> None:
    mailing_list = new_list(client, title=TITLE, engagement=mode)
    reader = subscribe(stack, int(mailing_list["id"]))
    for path in (f"/s/{mailing_list['slug']}", f"/engagement?trace_id={reader.trace_id}"):
        require_accessible(open_page(f"{stack.api_url}{path}"))
