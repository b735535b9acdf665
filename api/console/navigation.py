"""Lists the pages in the menus and in the search of the console."""

from dataclasses import dataclass

from api.console.assets import CONSOLE_PATH


@dataclass(frozen=True)
class NavigationEntry:
    """A link to a page of the console, shown in a menu or in the results of a search.

    ``other_path``: the path of other pages that belong to the menu entry, or ``None``.
    """

    label: str
    path: str
    other_path: str | None = None


# The links in the console's main menu.
MAIN_PAGES = (
    NavigationEntry("Overview", CONSOLE_PATH),
    NavigationEntry("Lists", f"{CONSOLE_PATH}/lists", f"{CONSOLE_PATH}/fields"),
    NavigationEntry("Imports", f"{CONSOLE_PATH}/imports"),
    NavigationEntry("Exports", f"{CONSOLE_PATH}/exports"),
    NavigationEntry("Images", f"{CONSOLE_PATH}/images"),
    NavigationEntry("Composer", f"{CONSOLE_PATH}/composer"),
    NavigationEntry("Credits", f"{CONSOLE_PATH}/credits"),
    NavigationEntry("Developers", f"{CONSOLE_PATH}/developers"),
)

# The links in the menu of the console's area "Developers".
DEVELOPER_PAGES = (
    NavigationEntry("Overview", f"{CONSOLE_PATH}/developers"),
    NavigationEntry("API keys", f"{CONSOLE_PATH}/developers/keys"),
    NavigationEntry("Connected apps", f"{CONSOLE_PATH}/developers/access"),
    NavigationEntry("Webhooks", f"{CONSOLE_PATH}/developers/webhooks"),
    NavigationEntry("Senders", f"{CONSOLE_PATH}/developers/senders"),
    NavigationEntry("Events", f"{CONSOLE_PATH}/developers/feed"),
)

# The links in the menu of the account pages.
ACCOUNT_PAGES = (
    NavigationEntry("Overview", "/account"),
    NavigationEntry("Password", "/account/password"),
    NavigationEntry("E-mail address", "/account/email"),
    NavigationEntry("Second factors", "/account/factors"),
    NavigationEntry("History", "/account/events"),
)

OPERATORS_PAGE = NavigationEntry("Operators", f"{CONSOLE_PATH}/operators")
# The links in the menu of the console's area "Operators", which only operators can see.
OPERATOR_PAGES = (
    NavigationEntry("Needs attention", OPERATORS_PAGE.path),
    NavigationEntry("Users", f"{OPERATORS_PAGE.path}/users"),
    NavigationEntry("Orders", f"{OPERATORS_PAGE.path}/orders"),
    NavigationEntry("Jobs", f"{OPERATORS_PAGE.path}/jobs"),
    NavigationEntry("Maintenance", f"{OPERATORS_PAGE.path}/maintenance"),
)

# The links in the menu of a list, with paths relative to the path of the list.
LIST_PAGES = (
    NavigationEntry("Overview", ""),
    NavigationEntry("Members", "/members"),
    NavigationEntry("Segments", "/segments"),
    NavigationEntry("Tags", "/tags"),
    NavigationEntry("Bulk actions", "/bulk-actions"),
    NavigationEntry("Public page", "/public"),
    NavigationEntry("Export", "/export"),
    NavigationEntry("Send", "/send"),
    NavigationEntry("Mailings", "/mailings"),
    NavigationEntry("Settings", "/settings"),
)
# Pages that are in no menu, but can be found by the search.
_SEARCHABLE_PAGES = (
    NavigationEntry("Create a list", f"{CONSOLE_PATH}/lists/new"),
    NavigationEntry("Import a file", f"{CONSOLE_PATH}/imports/new"),
    NavigationEntry("Member fields", f"{CONSOLE_PATH}/fields"),
    NavigationEntry("Create an API key", f"{CONSOLE_PATH}/developers/keys/new"),
    NavigationEntry("Create a webhook", f"{CONSOLE_PATH}/developers/webhooks/new"),
    NavigationEntry("Create a sender", f"{CONSOLE_PATH}/developers/senders/new"),
    NavigationEntry("Buy credits", f"{CONSOLE_PATH}/credits/buy"),
    NavigationEntry("Orders and receipts", f"{CONSOLE_PATH}/credits/orders"),
    NavigationEntry("Your account: password, sessions, second factors", "/account"),
)


def find_pages(words: str, *, is_operator: bool) -> list[NavigationEntry]:
    searched_text = words.strip().casefold()
    pages = (
        *MAIN_PAGES,
        *DEVELOPER_PAGES[1:],
        *_SEARCHABLE_PAGES,
        *(OPERATOR_PAGES if is_operator else ()),
    )
    return [
        each for each in pages if len(searched_text) > 1 and searched_text in each.label.casefold()
    ]


def get_main_pages(*, is_operator: bool) -> tuple[NavigationEntry, ...]:
    return (*MAIN_PAGES, OPERATORS_PAGE) if is_operator else MAIN_PAGES


def get_list_path(list_id: int) -> str:
    return f"{CONSOLE_PATH}/lists/{list_id}"


def get_list_pages(list_id: int) -> tuple[NavigationEntry, ...]:
    list_path = get_list_path(list_id)
    return tuple(NavigationEntry(entry.label, f"{list_path}{entry.path}") for entry in LIST_PAGES)


def get_current_mark(entry: NavigationEntry, path: str, *, is_first: bool = False) -> str | None:
    """Return the ``aria-current`` attribute of a menu entry on the page at ``path``.

    ``is_first``: whether the entry is the first in its menu. The first menu entry matches only its
    own page, because its path is a prefix of all other paths in the menu.
    """
    if path == entry.path:
        return "page"
    if entry.other_path is not None and f"{path}/".startswith(f"{entry.other_path}/"):
        return "true"
    return "true" if not is_first and path.startswith(f"{entry.path}/") else None
