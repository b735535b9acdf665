"""Lists the pages in the menus and in the search of the console."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from api.console.assets import CONSOLE_PATH


@dataclass(frozen=True)
class NavigationEntry:
    """A link to a page of the console, shown in a menu or in the results of a search.

    ``views``: links to the pages of the entry's area. Each page of the area shows them at its top.
    ``other_paths``: the paths of other pages that belong to the entry.
    """

    label: str
    path: str
    views: tuple["NavigationEntry", ...] = ()
    other_paths: tuple[str, ...] = ()

    def measure_match(self, path: str) -> int:
        """Return how many characters of ``path`` the entry's paths cover, or 0 for another area."""
        own_paths = (self.path, *self.other_paths, *(view.path for view in self.views))
        return max(len(each) if f"{path}/".startswith(f"{each}/") else 0 for each in own_paths)


@dataclass(frozen=True)
class Navigation:
    """The menus of a page.

    Attributes:
        pages: the entries above all groups.
        list_pages: the pages of the current list. Empty if the page belongs to no list.
        shortcuts: the entries of the bar at the bottom of a phone, except the menu itself.
        current: the menu entry of the page's area, or ``None``.
        view: the current one of the area's views, or ``None``.
    """

    pages: tuple[NavigationEntry, ...]
    list_pages: tuple[NavigationEntry, ...]
    library: tuple[NavigationEntry, ...]
    account: tuple[NavigationEntry, ...]
    shortcuts: tuple[NavigationEntry, ...]
    current: NavigationEntry | None
    view: NavigationEntry | None


def _build_pages(start: str, pages: Mapping[str, str]) -> tuple[NavigationEntry, ...]:
    # ``pages`` maps the label of each page to the rest of its path after ``start``.
    return tuple(NavigationEntry(label, f"{start}{rest}") for label, rest in pages.items())


def _build_area(label: str, path: str, pages: Mapping[str, str]) -> NavigationEntry:
    return NavigationEntry(label, path, _build_pages(path, pages))


OVERVIEW_PAGE = NavigationEntry("Overview", CONSOLE_PATH)
FIND_PAGE = NavigationEntry("Find", f"{CONSOLE_PATH}/find")
OPERATORS_PAGE = _build_area(
    "Operators",
    f"{CONSOLE_PATH}/operators",
    {
        "Needs attention": "",
        "Users": "/users",
        "Orders": "/orders",
        "Jobs": "/jobs",
        "Maintenance": "/maintenance",
    },
)
_FIELDS_PAGE = NavigationEntry("Fields", f"{CONSOLE_PATH}/fields")
_LISTS_PAGE = NavigationEntry(
    "Lists",
    f"{CONSOLE_PATH}/lists",
    (
        NavigationEntry("All lists", f"{CONSOLE_PATH}/lists"),
        _FIELDS_PAGE,
        *_build_pages(CONSOLE_PATH, {"Imports": "/imports", "Exports": "/exports"}),
    ),
)
_LIBRARY_PAGES = _build_pages(CONSOLE_PATH, {"Images": "/images", "Composer": "/composer"})
_ACCOUNT_PAGES = (
    _build_area("Credits", f"{CONSOLE_PATH}/credits", {"Balance": "", "Orders": "/orders"}),
    _build_area(
        "Developers",
        f"{CONSOLE_PATH}/developers",
        {
            "Overview": "",
            "API keys": "/keys",
            "Connected apps": "/access",
            "Webhooks": "/webhooks",
            "Senders": "/senders",
            "Events": "/feed",
        },
    ),
    _build_area(
        "Account",
        "/account",
        {
            "Overview": "",
            "Password": "/password",
            "E-mail address": "/email",
            "Second factors": "/factors",
            "History": "/events",
        },
    ),
)

# Pages that the search names differently than a menu, or that are in no menu.
_SEARCHABLE_PAGES = (
    NavigationEntry("Your account: password, sessions, second factors", "/account"),
    *_build_pages(
        CONSOLE_PATH,
        {
            "Member fields": "/fields",
            "Orders and receipts": "/credits/orders",
            "Create a list": "/lists/new",
            "Import a file": "/imports/new",
            "Create an API key": "/developers/keys/new",
            "Create a webhook": "/developers/webhooks/new",
            "Create a sender": "/developers/senders/new",
            "Buy credits": "/credits/buy",
        },
    ),
)


def build_navigation(path: str, list_id: int | None, *, is_operator: bool) -> Navigation:
    """Return the menus of the page at ``path``.

    ``list_id``: the current list, or ``None`` for pages of no list.
    """
    list_pages = () if list_id is None else _build_list_pages(get_list_path(list_id))
    library = _LIBRARY_PAGES if list_pages else (_LISTS_PAGE, *_LIBRARY_PAGES)
    account = (*_ACCOUNT_PAGES, OPERATORS_PAGE) if is_operator else _ACCOUNT_PAGES
    pages = (OVERVIEW_PAGE, FIND_PAGE)
    # The bar at the bottom of a phone has room for two areas.
    areas = (list_pages[0], list_pages[2]) if list_pages else library[:2]
    current = _find_current_entry((*pages, *list_pages, *library, *account), path)
    return Navigation(
        pages=pages,
        list_pages=list_pages,
        library=library,
        account=account,
        shortcuts=(OVERVIEW_PAGE, *areas, FIND_PAGE),
        current=current,
        view=_find_current_entry(current.views, path) if current else None,
    )


def _build_list_pages(list_path: str) -> tuple[NavigationEntry, ...]:
    return (
        NavigationEntry("Growth", list_path),
        NavigationEntry("Engagement", f"{list_path}/engagement"),
        NavigationEntry(
            "Members",
            f"{list_path}/members",
            (
                *_build_pages(list_path, {"Members": "/members", "Tags": "/tags"}),
                _FIELDS_PAGE,
                *_build_pages(list_path, {"Bulk actions": "/bulk-actions", "Export": "/export"}),
            ),
            other_paths=(f"{CONSOLE_PATH}/imports", f"{CONSOLE_PATH}/exports"),
        ),
        *_build_pages(
            list_path,
            {
                "Segments": "/segments",
                "Mailings": "/mailings",
                "Send": "/send",
                "Sign-up": "/public",
            },
        ),
        NavigationEntry("Settings", f"{list_path}/settings", other_paths=(f"{list_path}/archive",)),
    )


def _find_current_entry(entries: Iterable[NavigationEntry], path: str) -> NavigationEntry | None:
    """Return the entry that has the longest prefix of ``path`` among its paths."""
    matches = [entry for entry in entries if entry.measure_match(path)]
    return max(matches, key=lambda entry: entry.measure_match(path), default=None)


def find_pages(words: str, *, is_operator: bool) -> list[NavigationEntry]:
    searched_text = words.strip().casefold()
    menu = build_navigation("", None, is_operator=is_operator)
    entries = (OVERVIEW_PAGE, *menu.library, *menu.account)
    views = [view for entry in entries for view in entry.views]
    # If a page has several labels, the results show the last one.
    pages = {each.path: each for each in (*views, *entries, *_SEARCHABLE_PAGES)}
    if is_operator:
        pages[OPERATORS_PAGE.path] = NavigationEntry(
            "Operators: needs attention", OPERATORS_PAGE.path
        )
    return [
        each
        for each in pages.values()
        if len(searched_text) > 1 and searched_text in each.label.casefold()
    ]


def get_list_path(list_id: int) -> str:
    return f"{CONSOLE_PATH}/lists/{list_id}"
