"""What makes a page usable by everybody: by ear, by touch, and in a narrow window."""

import json
from collections.abc import Callable

from axe_playwright_python.base import AXE_SCRIPT, AxeResults
from playwright.sync_api import Page, ViewportSize, expect

from tests.support.sizes import SIZE

Open = Callable[..., Page]
NARROW = 320
WIDE: ViewportSize = {"width": 1280, "height": 900}
TOUCHABLE = 44  # CSS pixels
LONG_WORD = "Donaudampfschifffahrtsgesellschaftskapitänsmützen"
# `make test` looks at some pages of each kind, in test_every_page; the full tier also at each page
# that a journey comes by.
IS_THOROUGH = SIZE != "few"


def shows(page: Page, heading: str) -> None:
    """Wait for the page with this heading; in the full tier, require that everybody can use it."""
    expect(page.get_by_role("heading", level=1)).to_have_text(heading)
    if IS_THOROUGH:
        require_accessible(page)


def require_accessible(page: Page) -> None:
    require_no_violations(page)
    for button in page.get_by_role("button").all():
        box = button.bounding_box()
        assert box
        assert box["height"] >= TOUCHABLE


def require_no_violations(page: Page, *rules: str) -> None:
    """Require that axe finds nothing wrong, by these of its rules or by all of them."""
    # The script is large: a page that was looked at before has it.
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE_SCRIPT)
    options: dict[str, object] = {"resultTypes": ["violations"]}
    if rules:
        options["runOnly"] = rules
    found = AxeResults(page.evaluate(f"axe.run({json.dumps(options)})"))
    assert found.violations_count == 0, found.generate_report()


def fits(page: Page, width: int = NARROW) -> bool:
    """Return whether nothing but a table of its own scrolls sideways."""
    return int(page.evaluate("document.documentElement.scrollWidth")) <= width


# Finds headings, texts and controls that stick out of their card, form or page. Menus, tables and
# code are left out, because they scroll sideways on their own.
_PROTRUDING = """
() => [...document.querySelectorAll("main :is(h1, p, a, button, input, select, textarea, img)")]
    .filter((each) => each.checkVisibility() && !each.closest("nav, .wide, pre, .unseen"))
    .filter((each) => {
        const frame = each.parentElement.closest("section, fieldset, main");
        const { right, width } = each.getBoundingClientRect();
        return width > 0 && right > frame.getBoundingClientRect().right + 1;
    })
    .map((each) => each.outerHTML.slice(0, 200))
"""
_HIDDEN_ENTRIES = """
() => [...document.querySelectorAll("nav li > [aria-current]")]
    .filter((each) => {
        const menu = each.closest("ul").getBoundingClientRect();
        const { left, right } = each.getBoundingClientRect();
        return left < menu.left - 1 || right > menu.right + 1;
    })
    .map((each) => each.textContent)
"""


def find_protruding_elements(page: Page) -> list[str]:
    """Return the HTML of the elements that stick out of the card, form or page around them."""
    return list(page.evaluate(_PROTRUDING))


def find_hidden_entries(page: Page) -> list[str]:
    """Return the current entries of menus that are scrolled out of view."""
    return list(page.evaluate(_HIDDEN_ENTRIES))
