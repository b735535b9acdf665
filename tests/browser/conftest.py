import shutil
from asyncio import AbstractEventLoop, events
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    expect,
    sync_playwright,
)

from tests.support.browser.keyboards import Keyboard
from tests.support.browser.looks import NARROW, WIDE, Open
from tests.support.prerequisites import pass_over

# A limit against hanging: a machine that runs all tests at once is slow.
expect.set_options(timeout=30_000)
OWN_MACHINE = ("http://127.0.0.1:", "http://localhost:", "ws://127.0.0.1:", "data:", "blob:")
# A browser logs every page that is answered 4xx, as a form with something wrong is, a site without
# an icon, and a field that was filled in before the page set the focus: no person is so quick.
USUAL = ("status of 4", "favicon", "Autofocus")
_ARGUMENTS = [
    *("--no-sandbox", "--disable-gpu", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
]


@pytest.fixture(scope="session")
def chromium() -> Iterator[tuple[Browser, AbstractEventLoop]]:
    """The system's Chromium, without a window, started once a process, and Playwright's loop."""
    found = shutil.which("chromium")
    if found is None:
        pass_over("the pages need Chromium")
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=found, args=_ARGUMENTS)
        loop = events.get_running_loop()
        events._set_running_loop(None)
        yield running, loop
        events._set_running_loop(loop)
        running.close()


@pytest.fixture(scope="module")
def browser(chromium: tuple[Browser, AbstractEventLoop]) -> Iterator[Browser]:
    """The browser, while a file of tests uses it.

    Playwright marks its event loop as the one that runs in this thread. Tests of other files could
    run no loop of their own then.
    """
    running, loop = chromium
    events._set_running_loop(loop)
    yield running
    events._set_running_loop(None)


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Open]:
    """A function that opens pages in a browser.

    The test fails if a page requests a URL outside of this machine, or if a script on a page fails.
    """
    contexts: list[BrowserContext] = []
    complaints: list[str] = []

    def open_at(
        url: str,
        login: tuple[str, str] | None = None,
        *,
        scripts: bool = True,
        **options: Any,
    ) -> Page:
        context = browser.new_context(
            java_script_enabled=scripts,
            http_credentials={"username": login[0], "password": login[1]} if login else None,
            **{"viewport": WIDE, **options},
        )
        contexts.append(context)
        page = context.new_page()

        def outside(request: object) -> None:
            address = getattr(request, "url", "")
            if not address.startswith(OWN_MACHINE):
                complaints.append(f"asked for {address}")

        page.on("request", outside)
        page.on("pageerror", lambda error: complaints.append(f"broke: {error}"))
        page.goto(url)
        return page

    yield open_at
    for context in contexts:
        context.close()
    assert complaints == []


@pytest.fixture
def open_empty_page(open_page: Open) -> Iterator[Open]:
    """A function that opens an empty browser page, in which a test can visit Pressroom.

    The test fails if an opened page logs an error or a warning to the console of the browser.
    """
    complaints: list[str] = []

    def hear(message: ConsoleMessage) -> None:
        is_complaint = message.type in {"error", "warning"}
        if is_complaint and not any(words in message.text for words in USUAL):
            complaints.append(message.text)

    def open_empty(**options: Any) -> Page:
        page = open_page("about:blank", **options)
        page.on("console", hear)
        return page

    yield open_empty
    assert complaints == []


@pytest.fixture
def page(open_empty_page: Open) -> Page:
    """An empty page in a browser."""
    return open_empty_page()


@pytest.fixture(params=["with scripts", "without scripts, narrow and dark"])
def keyboard(request: pytest.FixtureRequest, open_page: Open) -> Keyboard:
    """A browser that the test controls with the keyboard only."""
    if request.param == "with scripts":
        return Keyboard(open_page("about:blank"))
    narrow = {"width": NARROW, "height": 800}
    plain = open_page("about:blank", scripts=False, viewport=narrow, color_scheme="dark")
    return Keyboard(plain, scripts=False)
