"""Checks that a page is usable with a screen reader, by touch, and in a narrow window."""

import json
from collections.abc import Callable

from axe_playwright_python.base import AXE_SCRIPT, AxeResults
from playwright.sync_api import Page, ViewportSize, expect

from tests.support.sizes import SIZE

OpenPage = Callable[..., Page]
# All sizes are in CSS pixels.
NARROW_WIDTH = 320
WIDE_VIEWPORT: ViewportSize = {"width": 1280, "height": 900}
MIN_BUTTON_HEIGHT = 44
# The minimum height of the console's buttons in a wide window with a mouse.
MIN_CONSOLE_BUTTON_HEIGHT = 36
LONG_WORD = "Donaudampfschifffahrtsgesellschaftskapitänsmützen"
# `make test` checks some pages of each kind, in test_every_page. The larger sizes also check each
# page that a test passes on its way.
IS_THOROUGH = SIZE != "few"
_IS_FOR_MOUSE = """document.body.classList.contains("console")
    && !matchMedia("(pointer: coarse), (max-width: 40rem)").matches"""


def require_page(page: Page, heading: str) -> None:
    """Wait for the page with this heading. In the larger sizes, also check its accessibility."""
    expect(page.get_by_role("heading", level=1)).to_have_text(heading)
    if IS_THOROUGH:
        require_accessible(page)


def require_accessible(page: Page) -> None:
    require_no_violations(page)
    min_height = MIN_CONSOLE_BUTTON_HEIGHT if page.evaluate(_IS_FOR_MOUSE) else MIN_BUTTON_HEIGHT
    for button in page.get_by_role("button").all():
        box = button.bounding_box()
        assert box
        assert box["height"] >= min_height


def require_no_violations(page: Page, *rules: str) -> None:
    """Require that axe finds no violation of ``rules``, or of any rule without ``rules``."""
    # Load the large script only once per page.
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE_SCRIPT)
    options: dict[str, object] = {"resultTypes": ["violations"]}
    if rules:
        options["runOnly"] = rules
    results = AxeResults(page.evaluate(f"axe.run({json.dumps(options)})"))
    assert results.violations_count == 0, results.generate_report()


def fits_width(page: Page, width: int = NARROW_WIDTH) -> bool:
    """Return whether the page doesn't scroll sideways. Wide tables scroll on their own."""
    return int(page.evaluate("document.documentElement.scrollWidth")) <= width


# Finds headings, texts and controls that stick out of their card, form or page. Menus, tables and
# code are left out, because they scroll sideways on their own.
_FIND_PROTRUDING = """
() => [...document.querySelectorAll("main :is(h1, p, a, button, input, select, textarea, img)")]
    .filter((each) => each.checkVisibility() && !each.closest("nav, .wide, pre, .unseen"))
    .filter((each) => {
        const frame = each.parentElement.closest("section, fieldset, main");
        const { right, width } = each.getBoundingClientRect();
        return width > 0 && right > frame.getBoundingClientRect().right + 1;
    })
    .map((each) => each.outerHTML.slice(0, 200))
"""
_FIND_HIDDEN_ENTRIES = """
() => [...document.querySelectorAll("nav li > [aria-current]")]
    .filter((each) => {
        const menu = each.closest("ul").getBoundingClientRect();
        const { left, right } = each.getBoundingClientRect();
        return left < menu.left - 1 || right > menu.right + 1;
    })
    .map((each) => each.textContent)
"""


def find_protruding_elements(page: Page) -> list[str]:
    return list(page.evaluate(_FIND_PROTRUDING))


def find_hidden_entries(page: Page) -> list[str]:
    return list(page.evaluate(_FIND_HIDDEN_ENTRIES))
