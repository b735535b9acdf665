"""People who press keys and nothing else, and who see where they are at each press."""

from pathlib import Path
from typing import Literal, TypedDict

from playwright.sync_api import Locator, Page, expect

from tests.support.browser import looks

# More than any page has of what a key can reach.
MAX_PRESSES = 150
MAX_LOOKS = 200
Role = Literal["button", "checkbox", "combobox", "link", "radio", "searchbox", "textbox"]

# Where the focus is, and what keeps a person from seeing that.
_STOP = """(target) => {
  const focused = document.activeElement;
  const everything = [...document.querySelectorAll("*")];
  const place = everything.indexOf(focused);
  if (!focused || focused === document.body) {
    return { is_target: false, name: "(the page)", place: -1, parts: 1, hidden_by: null };
  }
  const labels = [...(focused.labels || [])].map((each) => each.innerText).join(" ");
  const name = focused.getAttribute("aria-label") || labels || focused.innerText || focused.id;
  // The browser shows a date as some fields and a button, which are one element to the page.
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
    const found = [...element.getClientRects()].find((each) => each.width && each.height);
    if (!found) return "it has no size";
    const seen = { left: found.left, top: found.top, right: found.right, bottom: found.bottom };
    cut({ left: 0, top: 0, right: innerWidth, bottom: innerHeight });
    for (let each = element.parentElement; each !== document.body; each = each.parentElement) {
      if (getComputedStyle(each).overflowX !== "visible") cut(each.getBoundingClientRect());
    }
    if (seen.right - seen.left < 1 || seen.bottom - seen.top < 1) return "it is out of sight";
    const [x, y] = [(seen.left + seen.right) / 2, (seen.top + seen.bottom) / 2];
    const there = document.elementFromPoint(x, y);
    const label = there && there.closest("label");
    if (element.contains(there) || (label && label.control === element)) return null;
    return `${there ? there.outerHTML.slice(0, 120) : "nothing"} stands before it`;

    function cut(edges) {
      seen.left = Math.max(seen.left, edges.left);
      seen.top = Math.max(seen.top, edges.top);
      seen.right = Math.min(seen.right, edges.right);
      seen.bottom = Math.min(seen.bottom, edges.bottom);
    }
  }
}"""
# The places of all that Tab should reach, as the page has them one after the other.
_REACHABLE = """() => [...document.querySelectorAll("*")].flatMap((each, place) => {
  if (each.tabIndex < 0 || each.disabled || !each.checkVisibility()) return [];
  if (!each.matches("a[href], button, input, select, textarea, summary, [tabindex]")) return [];
  if (each.type === "radio") {
    const group = [...document.getElementsByName(each.name)];
    return (group.find((one) => one.checked) || group[0]) === each ? [place] : [];
  }
  return [place];
})"""


class Stop(TypedDict):
    """Where the focus came to.

    Attributes:
        place: how many elements of the page come before it.
        parts: at how many presses of Tab it may stay there.
    """

    is_target: bool
    name: str
    place: int
    parts: int
    hidden_by: str | None


class Keyboard:
    """All that a person does to a page with keys. Nothing here clicks, fills in or focuses."""

    def __init__(self, page: Page, *, scripts: bool = True) -> None:
        self.page = page
        self.scripts = scripts
        # From the beginning: no press is to come before the browser leaves its dialog to us.
        page.on("filechooser", lambda _: None)

    # -- where the focus goes ------------------------------------------------------------------

    def reach(self, role: Role, name: str, *, exact: bool = True, back: bool = False) -> Locator:
        """Press Tab until the focus is there; ``back``: towards the beginning of the page."""
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
        """The page set the focus there by itself, and it is seen."""
        expect(target).to_be_focused()
        assert self._stop(target)["is_target"]

    def begins_at_what_is_wrong(self, label: str) -> None:
        """The focus is on the field that is to be put right, and tells why."""
        field = self.page.get_by_label(label, exact=True)
        self.begins_at(field)
        expect(field).to_have_attribute("aria-invalid", "true")
        told = field.evaluate(
            "each => each.getAttribute('aria-describedby').trim().split(' ')"
            ".map(id => document.getElementById(id).innerText)"
        )
        assert all(told), told

    def walk(self) -> list[str]:
        """Tab through all of the page as it is loaded, and back; the names of what is there.

        Each control is reached, in the order of the page, and no one holds the focus.
        """
        reachable = self.page.evaluate(_REACHABLE)
        if not reachable:
            return []
        # A page may begin at its one field.
        is_within = self._stop(self.page.locator("html"))["place"] >= 0
        begun = self._run("Shift+Tab", until=reachable[0])[-1:] if is_within else []
        forwards = begun + self._run("Tab", until=reachable[-1])
        assert [each["place"] for each in forwards] == reachable, _names(forwards)
        # From the one control of a page, the way back leads out of the page.
        backwards = self._run("Shift+Tab", until=reachable[0]) if len(reachable) > 1 else []
        assert [each["place"] for each in backwards] == reachable[-2::-1], _names(backwards)
        return _names(forwards)

    def _run(self, keys: str, *, until: int) -> list[Stop]:
        stops: list[Stop] = []
        presses_here = 1
        while not stops or stops[-1]["place"] != until:
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
        stop: Stop = target.evaluate(_STOP)
        assert stop["hidden_by"] is None, f"{stop['name']} has the focus, but {stop['hidden_by']}"
        return stop

    # -- what is pressed there -----------------------------------------------------------------

    def press(self, role: Role, name: str, *, exact: bool = True, back: bool = False) -> None:
        """Reach a link or a button, press Enter, and wait for the page to which that leads."""
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
        """Uncheck all checkboxes on the page with the keyboard."""
        names = self.page.locator("input[type=checkbox]:checked").evaluate_all(
            "boxes => boxes.map(box => box.name)"
        )
        assert names
        for name in names:
            box = self.reach_it(self.page.locator(f'[name="{name}"]'))
            self.page.keyboard.press("Space")
            expect(box).not_to_be_checked()

    def choose(self, name: str, option: str) -> None:
        """Go through the options of a select box by the arrow until this one is chosen."""
        box = self.reach("combobox", name)
        options = box.get_by_role("option").all_inner_texts()
        assert option in options
        self.page.keyboard.press("Home")
        for _ in range(options.index(option)):
            self.page.keyboard.press("ArrowDown")
        expect(box.locator("option:checked")).to_have_text(option)

    def choose_file(self, name: str, path: Path) -> None:
        """Enter on the field opens the browser's own dialog, which is left to the browser."""
        self.reach_it(self.page.get_by_label(name, exact=True))
        with self.page.expect_file_chooser() as opened:
            self.page.keyboard.press("Enter")
        opened.value.set_files(path)

    # -- what is seen --------------------------------------------------------------------------

    def shows(self, heading: str) -> None:
        if self.scripts:
            looks.shows(self.page, heading)
        else:
            # axe is a script itself, and the page is the same.
            expect(self.page.get_by_role("heading", level=1)).to_have_text(heading)

    def watch_until(self, shown: Locator) -> None:
        """With scripts the page looks by itself; without them its link does, by Enter alone."""
        if not self.scripts:
            again = self.page.get_by_role("link", name="Refresh", exact=True)
            for _ in range(MAX_LOOKS):
                if again.count() == 0:
                    break
                self.reach_it(again)
                self.enter()
        expect(shown.first).to_be_visible()


def _names(stops: list[Stop]) -> list[str]:
    return [each["name"] for each in stops]
