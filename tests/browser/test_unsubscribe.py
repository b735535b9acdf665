"""The pages that mail leads to, in a real browser: what a person sees, presses and hears."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import ConsoleMessage, Page, expect

from tests.stack import Stack, eventually
from tests.subscribers import Subscriber, new_list, subscribe, subscribe_pending

Open = Callable[..., Page]
Keep = Callable[[Page, str], Path]
TITLE = "The Morning Letter"
LONG_TITLE = "Donaudampfschifffahrtsgesellschaftskapitänsmützen" * 4
NARROW = 320
TOUCHABLE = 44  # CSS pixels


@pytest.fixture
def page(open_page: Open) -> Iterator[Page]:
    """An empty page; the test fails if what is opened in it logs an error."""
    opened = open_page("about:blank")
    complaints: list[str] = []

    def hear(message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            complaints.append(message.text)

    opened.on("console", hear)
    yield opened
    assert complaints == []


@pytest.fixture
def reader(stack: Stack, client: httpx.Client) -> Subscriber:
    return subscribe(stack, new_list(client, TITLE))


@pytest.fixture
def waiting(stack: Stack, client: httpx.Client) -> Subscriber:
    return subscribe_pending(stack, new_list(client, TITLE, confirm_required=True))


def shows(page: Page, heading: str) -> None:
    """It shows this, and anybody can read and use it."""
    expect(page.get_by_role("heading", level=1)).to_have_text(heading)
    expect(page).to_have_title(f"{heading} – {TITLE}")
    require_accessible(page)


def require_accessible(page: Page) -> None:
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
    for button in page.get_by_role("button").all():
        box = button.bounding_box()
        assert box
        assert box["height"] >= TOUCHABLE


def test_a_person_leaves_and_comes_back(page: Page, reader: Subscriber, keep: Keep) -> None:
    page.goto(reader.unsubscribe_url)
    shows(page, "You are subscribed")
    keep(page, "unsubscribe")
    page.get_by_role("button", name="Unsubscribe").click()
    shows(page, "You have unsubscribed")
    assert reader.stands() == ("unsubscribed", True)
    keep(page, "unsubscribe-done")
    left = reader.kept()
    # Nothing is sent again, and the browser has nothing to warn of.
    page.reload()
    shows(page, "You have unsubscribed")
    assert reader.kept() == left
    page.get_by_role("button", name="Subscribe me again").click()
    shows(page, "You are subscribed")
    assert reader.stands() == ("active", True)


def test_a_person_stops_the_mail_and_wants_it_again(
    page: Page, reader: Subscriber, keep: Keep
) -> None:
    page.goto(reader.unsubscribe_url)
    page.get_by_role("button", name="Only stop the e-mails").click()
    shows(page, "E-mails are off")
    assert reader.stands() == ("active", False)
    keep(page, "unsubscribe-mail-off")
    page.get_by_role("button", name="Send me e-mails again").click()
    shows(page, "You are subscribed")
    assert reader.stands() == ("active", True)


def test_a_person_confirms(page: Page, waiting: Subscriber, keep: Keep) -> None:
    page.goto(waiting.unsubscribe_url)
    shows(page, "Not confirmed yet")
    keep(page, "unsubscribe-pending")
    page.goto(waiting.confirm_url())
    shows(page, "Confirm your subscription")
    keep(page, "confirm")
    page.get_by_role("button", name="Confirm my subscription").click()
    shows(page, "You’re subscribed")
    assert waiting.stands() == ("active", True)
    keep(page, "confirm-done")


def test_mails_lead_to_the_pages(stack: Stack, page: Page, waiting: Subscriber) -> None:
    page.goto(mailed_link(waiting, "/confirm"))
    page.get_by_role("button", name="Confirm my subscription").click()
    shows(page, "You’re subscribed")
    page.goto(mailed_link(waiting, "/unsubscribe"))
    page.get_by_role("button", name="Unsubscribe").click()
    shows(page, "You have unsubscribed")
    assert waiting.stands() == ("unsubscribed", True)


def mailed_link(person: Subscriber, path: str) -> str:
    """The address below this path that the person was mailed."""
    link = re.escape(f"{person.stack.api_url}{path}?") + r"[\w.=&-]+"

    def find() -> list[str]:
        return [
            url
            for each in person.stack.mails(person.email)
            for url in re.findall(link, each["text"])
        ]

    found = eventually(find, what=f"mail that leads to {path}")
    assert isinstance(found, list)
    return str(found[0])


def test_pages_work_without_scripts(page: Page, reader: Subscriber) -> None:
    browser = page.context.browser
    assert browser
    plain = browser.new_context(java_script_enabled=False).new_page()
    plain.goto(reader.unsubscribe_url)
    plain.get_by_role("button", name="Unsubscribe").click()
    expect(plain.get_by_role("heading", level=1)).to_have_text("You have unsubscribed")
    plain.get_by_role("button", name="Subscribe me again").click()
    expect(plain.get_by_role("heading", level=1)).to_have_text("You are subscribed")
    plain.context.close()


def test_keyboard_alone_is_enough(page: Page, reader: Subscriber, keep: Keep) -> None:
    page.goto(reader.unsubscribe_url)
    page.keyboard.press("Tab")
    focused = page.locator(":focus")
    expect(focused).to_have_text("Unsubscribe")
    outline = focused.evaluate("each => getComputedStyle(each).outlineStyle")
    assert outline == "solid"
    page.keyboard.press("Tab")
    expect(page.locator(":focus")).to_have_text("Only stop the e-mails")
    keep(page, "unsubscribe-focus")
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Enter")
    shows(page, "You have unsubscribed")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    shows(page, "You are subscribed")
    assert reader.stands() == ("active", True)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_narrow_windows_show_all_without_scrolling_sideways(
    stack: Stack, client: httpx.Client, page: Page, keep: Keep, scheme: str
) -> None:
    page.set_viewport_size({"width": NARROW, "height": 640})
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    reader = subscribe_pending(stack, new_list(client, LONG_TITLE, confirm_required=True))
    for name, url in (
        ("unsubscribe-narrow", reader.unsubscribe_url),
        ("confirm-narrow", reader.confirm_url()),
    ):
        page.goto(url)
        assert page.evaluate("document.documentElement.scrollWidth") <= NARROW
        require_accessible(page)
        keep(page, f"{name}-{scheme}")


def test_dark_windows_get_dark_pages(page: Page, reader: Subscriber, keep: Keep) -> None:
    colour = "() => getComputedStyle(document.body).backgroundColor"
    page.goto(reader.unsubscribe_url)
    light = page.evaluate(colour)
    page.emulate_media(color_scheme="dark")
    assert page.evaluate(colour) != light
    shows(page, "You are subscribed")
    keep(page, "unsubscribe-dark")


def test_text_twice_as_large_still_fits(page: Page, reader: Subscriber) -> None:
    page.set_viewport_size({"width": 640, "height": 800})
    page.goto(reader.unsubscribe_url)
    page.evaluate("document.documentElement.style.fontSize = '200%'")
    assert page.evaluate("document.documentElement.scrollWidth") <= 640


def test_broken_links_get_a_kind_page(stack: Stack, open_page: Open, keep: Keep) -> None:
    page = open_page(f"{stack.api_url}/unsubscribe?trace_id=cut-off")
    expect(page.get_by_role("heading", level=1)).to_have_text("This link doesn’t work")
    require_accessible(page)
    keep(page, "unsubscribe-broken-link")


def test_a_person_reports_a_list_that_they_did_not_ask_for(
    page: Page, reader: Subscriber, keep: Keep
) -> None:
    page.goto(reader.unsubscribe_url)
    page.get_by_role("link", name="Report this list").click()
    shows(page, "Report this list")
    keep(page, "report")
    # By the keyboard alone.
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    shows(page, "Thank you for your report")
    keep(page, "report-done")
    assert reader.stands()[0] == "unsubscribed"
