"""What readers do, by keyboard alone: subscribe on another site, and see to their subscriptions."""

from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import Browser, expect

from tests.browser.foreign_site import Site
from tests.browser.keyboards import PLAIN, WIDE, Circumstances, Keyboard, at_keyboard
from tests.browser.test_unsubscribe import mailed_link
from tests.contract.attributes import new_field
from tests.contract.replies import data
from tests.contract.subscribers import known_member
from tests.stack import Stack
from tests.subscribers import new_list, subscribe

TITLE = "The Morning Letter"
both = pytest.mark.parametrize(
    "circumstances", [WIDE, PLAIN], ids=["with scripts", "without scripts, narrow and dark"]
)


@pytest.fixture
def site() -> Iterator[Site]:
    running = Site()
    yield running
    running.close()


@pytest.fixture
def list_id(client: httpx.Client, site: Site) -> int:
    """A list whose form has a field of each type, and may lead back to the other site."""
    for key, kind in (("visits", "number"), ("born", "date"), ("news", "boolean")):
        new_field(client, key, kind, public=True)
    new_field(client, "tea", "choice", public=True, choices=["Green", "Black"])
    return new_list(client, TITLE, redirect_origins=[site.url])


@both
def test_a_reader_subscribes_by_a_form_on_another_site(
    browser: Browser, client: httpx.Client, site: Site, list_id: int, circumstances: Circumstances
) -> None:
    with at_keyboard(browser, circumstances) as keys:
        keys.page.goto(data(client.get(f"/lists/{list_id}/embed"))["page_url"])
        keys.walk()
        keys.press("link", "Put this form on a site of your own", back=True)
        snippet = keys.reach("textbox", "HTML").input_value()
        back = f'<input type="hidden" name="redirect_url" value="{site.url}/thanks">'
        pasted = snippet.replace("</form>", f"{back}</form>")
        site.page = f"<!doctype html><html lang=en><title>A site</title>{pasted}"
        keys.page.goto(site.url)
        _subscribe(keys)
        keys.shows("Thanks")
        assert keys.page.url == f"{site.url}/thanks"
    found = known_member(client, list_id, "ada@example.com")
    assert found["name"] == "Ada"
    assert found["fields"] == {"visits": 2, "born": "1990-02-01", "news": True, "tea": "Black"}


def _subscribe(keys: Keyboard) -> None:
    keys.write("E-mail address", "ada@example.com")
    keys.write("Name", "Ada")
    keys.write("Visits", "many")
    keys.reach_it(keys.page.get_by_label("Born"))
    keys.page.keyboard.type("02011990")
    keys.tick("News")
    keys.choose("Tea", "Black")
    keys.press("button", "Subscribe")
    # What is to be corrected is corrected on a page of ours.
    keys.shows("Not subscribed yet")
    visits = keys.page.get_by_role("textbox", name="Visits")
    keys.begins_at(visits)
    expect(visits).to_have_accessible_description("Please write a number.")
    keys.overwrite("2")
    keys.press("button", "Subscribe")


@both
def test_a_reader_changes_what_they_get_and_is_erased(
    stack: Stack, browser: Browser, list_id: int, circumstances: Circumstances
) -> None:
    reader = subscribe(stack, list_id)
    with at_keyboard(browser, circumstances) as keys:
        keys.page.goto(reader.unsubscribe_url)
        keys.walk()
        keys.reach("button", "Mail me the link", back=True)
        keys.enter()
        keys.shows("Look into your mail")
        keys.page.goto(mailed_link(reader, "/preferences/open"))
        keys.press("button", "Open my subscriptions")
        keys.shows("Your subscriptions")
        keys.walk()
        keys.reach("button", "Only stop the e-mails", back=True)
        keys.enter()
        expect(keys.page.get_by_role("button", name="Send me e-mails again")).to_be_visible()
        assert reader.stands() == ("active", False)
        _correct_an_answer(keys)
        keys.press("link", "Read it")
        keys.shows("What is known of you")
        expect(keys.page.get_by_text("Ada", exact=True)).to_be_visible()
        keys.press("link", "Back to your subscriptions")
        keys.press("link", "Have it erased")
        keys.press("button", "Erase all of it")
        keys.shows("You are erased")


def _correct_an_answer(keys: Keyboard) -> None:
    keys.press("link", "Your name and answers")
    keys.shows("Your name and answers")
    keys.write("Name", "Ada")
    keys.write("Visits", "many")
    keys.choose("News", "No")
    keys.press("button", "Save")
    keys.begins_at(keys.page.get_by_role("textbox", name="Visits"))
    keys.overwrite("3")
    keys.press("button", "Save")
    keys.shows("Your subscriptions")
