"""The pages to which every page of the console links; a new part of it is one line here."""

from dataclasses import dataclass

from api.console.assets import CONSOLE_PATH


@dataclass(frozen=True)
class NavigationEntry:
    label: str
    path: str


NAVIGATION = (
    NavigationEntry("Overview", CONSOLE_PATH),
    NavigationEntry("Lists", f"{CONSOLE_PATH}/lists"),
    NavigationEntry("Imports", f"{CONSOLE_PATH}/imports"),
    NavigationEntry("Exports", f"{CONSOLE_PATH}/exports"),
    NavigationEntry("Images", f"{CONSOLE_PATH}/images"),
    NavigationEntry("Composer", f"{CONSOLE_PATH}/composer"),
    NavigationEntry("Credits", f"{CONSOLE_PATH}/credits"),
    NavigationEntry("Developers", f"{CONSOLE_PATH}/developers"),
)

# The pages of whatever acts for an owner.
OF_DEVELOPERS = (
    NavigationEntry("Overview", f"{CONSOLE_PATH}/developers"),
    NavigationEntry("API keys", f"{CONSOLE_PATH}/developers/keys"),
    NavigationEntry("Access", f"{CONSOLE_PATH}/developers/access"),
    NavigationEntry("Webhooks", f"{CONSOLE_PATH}/developers/webhooks"),
    NavigationEntry("Events", f"{CONSOLE_PATH}/developers/feed"),
)

OF_ACCOUNT = (
    NavigationEntry("Overview", "/account"),
    NavigationEntry("Password", "/account/password"),
    NavigationEntry("E-mail address", "/account/email"),
    NavigationEntry("Second factors", "/account/factors"),
    NavigationEntry("History", "/account/events"),
)

OPERATORS = NavigationEntry("Operators", f"{CONSOLE_PATH}/operators")
# For operators alone.
OF_OPERATORS = (
    NavigationEntry("What waits", OPERATORS.path),
    NavigationEntry("Users", f"{OPERATORS.path}/users"),
    NavigationEntry("Orders", f"{OPERATORS.path}/orders"),
    NavigationEntry("Jobs", f"{OPERATORS.path}/jobs"),
    NavigationEntry("Maintenance", f"{OPERATORS.path}/maintenance"),
)

# The pages of one list, below its own path.
OF_A_LIST = (
    NavigationEntry("Overview", ""),
    NavigationEntry("Members", "/members"),
    NavigationEntry("Segments", "/segments"),
    NavigationEntry("Tags", "/tags"),
    NavigationEntry("Bulk actions", "/bulk-actions"),
    NavigationEntry("Public page", "/public"),
    NavigationEntry("Export", "/export"),
    NavigationEntry("Settings", "/settings"),
)


# Pages that are found by their names, beside those of the navigation.
_FINDABLE = (
    NavigationEntry("Create a list", f"{CONSOLE_PATH}/lists/new"),
    NavigationEntry("Import a file", f"{CONSOLE_PATH}/imports/new"),
    NavigationEntry("Fields of your members", f"{CONSOLE_PATH}/fields"),
    NavigationEntry("Create an API key", f"{CONSOLE_PATH}/developers/keys/new"),
    NavigationEntry("Create a webhook", f"{CONSOLE_PATH}/developers/webhooks/new"),
    NavigationEntry("Buy credits", f"{CONSOLE_PATH}/credits/buy"),
    NavigationEntry("Orders and receipts", f"{CONSOLE_PATH}/credits/orders"),
    NavigationEntry("Your account: password, sessions, second factor", "/account"),
)


def pages_named(words: str, *, is_operator: bool) -> list[NavigationEntry]:
    """Return the pages whose name has these words."""
    sought = words.strip().casefold()
    known = (*NAVIGATION, *OF_DEVELOPERS[1:], *_FINDABLE, *(OF_OPERATORS if is_operator else ()))
    return [each for each in known if len(sought) > 1 and sought in each.label.casefold()]


def navigation_of(*, is_operator: bool) -> tuple[NavigationEntry, ...]:
    return (*NAVIGATION, OPERATORS) if is_operator else NAVIGATION


def list_path(list_id: int) -> str:
    return f"{CONSOLE_PATH}/lists/{list_id}"


def of_list(list_id: int) -> tuple[NavigationEntry, ...]:
    own = list_path(list_id)
    return tuple(NavigationEntry(each.label, f"{own}{each.path}") for each in OF_A_LIST)


def current_mark(entry: NavigationEntry, path: str, *, is_first: bool = False) -> str | None:
    """Return the value of ``aria-current`` for an entry on the page at this path, if it has one.

    ``is_first``: the other entries stand below its path, so that only its own page is the entry's.
    """
    if path == entry.path:
        return "page"
    return "true" if not is_first and path.startswith(f"{entry.path}/") else None
