"""The console in a real browser: logged in, with and without scripts."""

from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, Page, expect

from services.access import sessions
from tests.browser.looks import WIDE
from tests.stack import Owner, Stack
from tests.visiting import SESSION


def log_in_browser(page: Page, stack: Stack, user_id: int) -> None:
    """By a session that is made behind the login page."""
    with stack.resources.unit_of_work() as uow:
        cookie = sessions.begin(uow, user_id)
    page.context.add_cookies([{"name": SESSION, "value": cookie, "url": stack.api_url}])


@contextmanager
def console_in(
    browser: Browser, stack: Stack, owner: Owner, *, scripts: bool = True
) -> Iterator[Page]:
    """A page of a browser in which the owner is logged in; it fails if the page logs an error."""
    context = browser.new_context(viewport=WIDE, java_script_enabled=scripts)
    page = context.new_page()
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    # A browser logs every page that is answered 4xx, as a form with something wrong is.
    page.on(
        "console",
        lambda message: (
            complaints.append(message.text)
            if message.type in {"error", "warning"} and "status of 4" not in message.text
            else None
        ),
    )
    log_in_browser(page, stack, owner.user_id)
    yield page
    context.close()
    assert complaints == [], complaints


def shows_console(page: Page, heading: str) -> None:
    expect(page.get_by_role("heading", level=1)).to_have_text(heading)
    expect(page).to_have_title(f"{heading} – Pressroom")
