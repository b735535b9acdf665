"""Simulates a person who uses a page only with the keyboard.

The simulation checks after each key that the focus is visible.
"""

from pathlib import Path
from typing import Literal, TypedDict

from playwright.sync_api import Locator, Page, expect

from tests.support.browser import accessibility

# A test fails after this many presses of Tab. A person needs fewer presses to reach every control
# of a page.
MAX_PRESSES = 150
MAX_REFRESHES = 200
Role = Literal["button", "checkbox", "combobox", "link", "radio", "searchbox", "textbox"]

# Describes the focused element, and the reason why a person can't see the focus.
_DESCRIBE_FOCUS = """(target) => {
  const focused = document.activeElement;
  const everything = [...document.querySelectorAll("*")];
  const place = everything.indexOf(focused);
  if (!focused || focused === document.body) {
    return { is_target: false, name: "(the page)", place: -1, parts: 1, hidden_by: null };
  }
  const labels = [...(focused.labels || [])].map((each) => each.innerText).join(" ");
  const name = focused.getAttribute("aria-label") || labels || focused.innerText || focused.id;
  // The browser shows a date as several fields and a button, but the page has only one element.
  const isOfParts = ["date", "time", "datetime-local"].includes(focused.type);
  return {
    is_target: focused === target,
    name: `${focused.localName} “${(name || "").trim().slice(0, 60)}”`,
    place,
    parts: isOfParts ? 5 : 1,
    hidden_by: hiddenBy(focused),
  };

  function hiddenBy(element) {
    const style = getComputedStyle(element);
      const isOfBrowser = isOfParts && document.styleSheets.length === 0;
    if ((style.outlineStyle === "none" || parseFloat(style.outlineWidth) === 0) && !isOfBrowser) {
      return "nothing is drawn around it";
    }
    const box = [...element.getClientRects()].find((each) => each.width && each.height);
    if (!box) return "it has no size";
    const visible = { left: box.left, top: box.top, right: box.right, bottom: box.bottom };
    cut({ left: 0, top: 0, right: innerWidth, bottom: innerHeight });
    for (let each = element.parentElement; each !== document.body; each = each.parentElement) {
      if (getComputedStyle(each).overflowX !== "visible") cut(each.getBoundingClientRect());
    }
    const width = visible.right - visible.left;
    const height = visible.bottom - visible.top;
    if (width < 1 || height < 1) return "it is out of sight";
    const [x, y] = [(visible.left + visible.right) / 2, (visible.top + visible.bottom) / 2];
    const topmost = document.elementFromPoint(x, y);
    const label = topmost && topmost.closest("label");
    if (element.contains(topmost) || (label && label.control === element)) return null;
    return `${topmost ? topmost.outerHTML.slice(0, 120) : "nothing"} covers it`;

    function cut(edges) {
      visible.left = Math.max(visible.left, edges.left);
      visible.top = Math.max(visible.top, edges.top);
      visible.right = Math.min(visible.right, edges.right);
      visible.bottom = Math.min(visible.bottom, edges.bottom);
    }
  }
}"""
# Returns the indexes of all elements that Tab should reach, in document order.
_FIND_REACHABLE = """() => [...document.querySelectorAll("*")].flatMap((each, place) => {
  if (each.tabIndex < 0 || each.disabled || !each.checkVisibility()) return [];
  if (!each.matches("a[href], button, input, select, textarea, summary, [tabindex]")) return [];
  if (each.type === "radio") {
    const group = [...document.getElementsByName(each.name)];
    return (group.find((one) => one.checked) || group[0]) === each ? [place] : [];
  }
  return [place];
})"""


class Stop(TypedDict):
    """An element that got the focus.

    Attributes:
        place: the index of the element in the document, or -1 for the page itself.
        parts: the number of presses of Tab for which the focus may stay on the element.
        hidden_by: the reason why a person can't see the focus.
    """

    is_target: bool
    name: str
    place: int
    parts: int
    hidden_by: str | None


class Keyboard:
    """Operates a page only with the keyboard, and never sets the focus directly."""

    def __init__(self, page: Page, *, scripts: bool = True) -> None:
        self.page = page
        self.scripts = scripts
        # Register the handler before any key is pressed, so that the browser never opens its own
        # file dialog.
        page.on("filechooser", lambda _: None)

    # -- Moving the focus ----------------------------------------------------------------------

    def reach(self, role: Role, name: str, *, exact: bool = True, back: bool = False) -> Locator:
        """Press Tab, or Shift+Tab if ``back`` is set, until the element has the focus."""
        return self.reach_it(self.page.get_by_role(role, name=name, exact=exact), back=back)

    def reach_it(self, target: Locator, *, back: bool = False) -> Locator:
        expect(target).to_be_visible()
        passed: list[str] = []
        stop = self._stop(target)
        while not stop["is_target"]:
            assert len(passed) < MAX_PRESSES, f"{target} was not among {passed}"
            self.page.keyboard.press("Shift+Tab" if back else "Tab")
            stop = self._stop(target)
            passed.append(stop["name"])
        return target

    def begins_at(self, target: Locator) -> None:
        """Check that the page itself moved the focus to the element, and shows the focus."""
        expect(target).to_be_focused()
        assert self._stop(target)["is_target"]

    def begins_at_first_error(self, label: str) -> None:
        """Check that the focus is on an invalid field, and that the page describes the error."""
        field = self.page.get_by_label(label, exact=True)
        self.begins_at(field)
        expect(field).to_have_attribute("aria-invalid", "true")
        descriptions = field.evaluate(
            "each => each.getAttribute('aria-describedby').trim().split(' ')"
            ".map(id => document.getElementById(id).innerText)"
        )
        assert all(descriptions), descriptions

    def walk(self) -> list[str]:
        """Tab through a newly loaded page and back, and return the names of the controls.

        Check that Tab reaches each control in document order, and that no control traps the focus.
        """
        reachable = self.page.evaluate(_FIND_REACHABLE)
        if not reachable:
            return []
        # A page may set the focus to its only field.
        is_within = self._stop(self.page.locator("html"))["place"] >= 0
        start = self._press_until("Shift+Tab", reachable[0])[-1:] if is_within else []
        forwards = start + self._press_until("Tab", reachable[-1])
        assert [each["place"] for each in forwards] == reachable, _names(forwards)
        # If the page has only one control, Shift+Tab leaves the page.
        backwards = self._press_until("Shift+Tab", reachable[0]) if len(reachable) > 1 else []
        assert [each["place"] for each in backwards] == reachable[-2::-1], _names(backwards)
        return _names(forwards)

    def _press_until(self, keys: str, last_place: int) -> list[Stop]:
        stops: list[Stop] = []
        presses_here = 1
        while not stops or stops[-1]["place"] != last_place:
            assert len(stops) < MAX_PRESSES, _names(stops)
            self.page.keyboard.press(keys)
            stop = self._stop(self.page.locator("html"))
            stays = bool(stops) and stops[-1]["place"] == stop["place"]
            presses_here = presses_here + 1 if stays else 1
            assert presses_here <= stop["parts"], f"{keys} stays at {stop['name']}"
            if not stays:
                stops.append(stop)
        return stops

    def _stop(self, target: Locator) -> Stop:
        stop: Stop = target.evaluate(_DESCRIBE_FOCUS)
        assert stop["hidden_by"] is None, f"{stop['name']} has the focus, but {stop['hidden_by']}"
        return stop

    # -- Pressing keys -------------------------------------------------------------------------

    def press(self, role: Role, name: str, *, exact: bool = True, back: bool = False) -> None:
        self.reach(role, name, exact=exact, back=back)
        self.enter()

    def enter(self) -> None:
        with self.page.expect_navigation():
            self.page.keyboard.press("Enter")

    def write(self, name: str, text: str, *, role: Role = "textbox") -> None:
        self.reach(role, name)
        self.overwrite(text)

    def overwrite(self, text: str) -> None:
        self.page.keyboard.press("Control+A")
        self.page.keyboard.type(text)

    def tick(self, name: str, *, exact: bool = True) -> None:
        box = self.reach("checkbox", name, exact=exact)
        self.page.keyboard.press("Space")
        expect(box).to_be_checked()

    def clear_checkboxes(self) -> None:
        names = self.page.locator("input[type=checkbox]:checked").evaluate_all(
            "boxes => boxes.map(box => box.name)"
        )
        assert names
        for name in names:
            box = self.reach_it(self.page.locator(f'[name="{name}"]'))
            self.page.keyboard.press("Space")
            expect(box).not_to_be_checked()

    def choose(self, name: str, option: str) -> None:
        box = self.reach("combobox", name)
        options = box.get_by_role("option").all_inner_texts()
        assert option in options
        self.page.keyboard.press("Home")
        for _ in range(options.index(option)):
            self.page.keyboard.press("ArrowDown")
        expect(box.locator("option:checked")).to_have_text(option)

    def choose_file(self, name: str, path: Path) -> None:
        """Press Enter on a file field, and choose the file without the browser's own dialog."""
        self.reach_it(self.page.get_by_label(name, exact=True))
        with self.page.expect_file_chooser() as opened:
            self.page.keyboard.press("Enter")
        opened.value.set_files(path)

    # -- Checking the page ---------------------------------------------------------------------

    def shows(self, heading: str) -> None:
        if self.scripts:
            accessibility.require_page(self.page, heading)
        else:
            # The accessibility checks need scripts, so they run only if the browser runs scripts.
            expect(self.page.get_by_role("heading", level=1)).to_have_text(heading)

    def watch_until(self, shown: Locator) -> None:
        """Wait until an element is visible.

        If the browser runs no scripts, follow the link *Refresh* until the page has no such link.
        """
        if not self.scripts:
            refresh_link = self.page.get_by_role("link", name="Refresh", exact=True)
            for _ in range(MAX_REFRESHES):
                if refresh_link.count() == 0:
                    break
                self.reach_it(refresh_link)
                self.enter()
        expect(shown.first).to_be_visible()


def _names(stops: list[Stop]) -> list[str]:
    return [each["name"] for each in stops]
