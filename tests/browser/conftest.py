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

from tests.support.browser.accessibility import NARROW_WIDTH, WIDE_VIEWPORT, OpenPage
from tests.support.browser.keyboards import Keyboard
from tests.support.prerequisites import skip_or_fail

# The timeout is long, because a machine that runs all tests at the same time is slow.
expect.set_options(timeout=30_000)
LOCAL_URL_PREFIXES = ("http://127.0.0.1:", "http://localhost:", "ws://127.0.0.1:", "data:", "blob:")
# Texts that identify expected messages in the browser's console. The browser logs a message about
# each response with a status 4xx, for example to an invalid form. The browser also logs a message
# about each site without an icon. If a test fills in a field while the page is loading, the browser
# logs that it ignores the attribute ``autofocus``.
IGNORED_CONSOLE_TEXTS = ("status of 4", "favicon", "Autofocus")
_ARGUMENTS = [
    *("--no-sandbox", "--disable-gpu", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
]


@pytest.fixture(scope="session")
def chromium() -> Iterator[tuple[Browser, AbstractEventLoop]]:
    """A headless Chromium and the event loop of Playwright, which all tests of a process share."""
    executable = shutil.which("chromium")
    if executable is None:
        skip_or_fail("the pages need Chromium")
    with sync_playwright() as playwright:
        launched_browser = playwright.chromium.launch(executable_path=executable, args=_ARGUMENTS)
        loop = events.get_running_loop()
        events._set_running_loop(None)
        yield launched_browser, loop
        events._set_running_loop(loop)
        launched_browser.close()


@pytest.fixture(scope="module")
def browser(chromium: tuple[Browser, AbstractEventLoop]) -> Iterator[Browser]:
    """The browser that all tests of a module use.

    While a module uses the browser, asyncio regards Playwright's event loop as running in this
    thread. After the last test of the module, the fixture marks the thread as having no running
    event loop, so that tests in other modules can run an event loop in this thread.
    """
    shared_browser, loop = chromium
    events._set_running_loop(loop)
    yield shared_browser
    events._set_running_loop(None)


@pytest.fixture
def open_page(browser: Browser) -> Iterator[OpenPage]:
    """A function that opens pages in a browser.

    The test fails if a page requests a URL outside of this machine, or if a script on a page fails.
    """
    contexts: list[BrowserContext] = []
    faults: list[str] = []

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
            **{"viewport": WIDE_VIEWPORT, **options},
        )
        contexts.append(context)
        page = context.new_page()

        def check_url(request: object) -> None:
            url_of_request = getattr(request, "url", "")
            if not url_of_request.startswith(LOCAL_URL_PREFIXES):
                faults.append(f"asked for {url_of_request}")

        page.on("request", check_url)
        page.on("pageerror", lambda error: faults.append(f"broke: {error}"))
        page.goto(url)
        return page

    yield open_at
    for context in contexts:
        context.close()
    assert faults == []


@pytest.fixture
def open_empty_page(open_page: OpenPage) -> Iterator[OpenPage]:
    """A function that opens an empty browser page, in which a test can visit Pressroom.

    The test fails if an opened page logs an error or a warning to the console of the browser.
    """
    faults: list[str] = []

    def check_message(message: ConsoleMessage) -> None:
        is_fault = message.type in {"error", "warning"}
        if is_fault and not any(
            ignored_text in message.text for ignored_text in IGNORED_CONSOLE_TEXTS
        ):
            faults.append(message.text)

    def open_empty(**options: Any) -> Page:
        page = open_page("about:blank", **options)
        page.on("console", check_message)
        return page

    yield open_empty
    assert faults == []


@pytest.fixture
def page(open_empty_page: OpenPage) -> Page:
    return open_empty_page()


@pytest.fixture(params=["with scripts", "without scripts, narrow and dark"])
def keyboard(request: pytest.FixtureRequest, open_page: OpenPage) -> Keyboard:
    if request.param == "with scripts":
        return Keyboard(open_page("about:blank"))
    narrow_viewport = {"width": NARROW_WIDTH, "height": 800}
    plain_page = open_page(
        "about:blank", scripts=False, viewport=narrow_viewport, color_scheme="dark"
    )
    return Keyboard(plain_page, scripts=False)
