import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests.prerequisites import pass_over

# A limit against hanging: a machine that runs all tests at once is slow.
expect.set_options(timeout=30_000)
SCREENSHOTS = Path(__file__).parents[2] / "build" / "screenshots"
OWN_MACHINE = ("http://127.0.0.1:", "http://localhost:", "ws://127.0.0.1:", "data:", "blob:")
_ARGUMENTS = [
    *("--no-sandbox", "--disable-gpu", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """The system's Chromium, without a window."""
    found = shutil.which("chromium")
    if found is None:
        pass_over("the pages need Chromium")
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=found, args=_ARGUMENTS)
        yield running
        running.close()


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Opens pages that may reach this machine only; the test fails if one asked for more.

    What a page logs as an error fails the test too.
    """
    contexts: list[BrowserContext] = []
    complaints: list[str] = []

    def open_at(url: str, login: tuple[str, str] | None = None) -> Page:
        context = browser.new_context(
            viewport={"width": 1280, "height": 900},
            http_credentials={"username": login[0], "password": login[1]} if login else None,
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


@pytest.fixture(scope="module")
def keep() -> Callable[[Page, str], Path]:
    """Keeps a screenshot under build/screenshots, for people to look at."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)

    def take(page: Page, name: str) -> Path:
        path = SCREENSHOTS / f"{name}.png"
        page.screenshot(path=path, full_page=True)
        return path

    return take
