"""The words for what is known of a reader, by the names that its JSON has."""

from collections.abc import Callable, Mapping
from typing import Any

from core.languages.reader_languages import marked, translated

_NAMES = {
    "action": marked("What"),
    "actor": marked("By"),
    "browser": marked("Browser"),
    "changed": marked("Changed"),
    "claimed_by": marked("Who says so"),
    "created_at": marked("When"),
    "email": marked("E-mail address"),
    "email_enabled": marked("E-mails are sent"),
    "how": marked("How"),
    "imported_at": marked("Imported at"),
    "ip": marked("IP address"),
    "joined_at": marked("Joined at"),
    "kind": marked("What"),
    "language": marked("Language"),
    "list": marked("List"),
    "name": marked("Name"),
    "occurred_at": marked("When"),
    "paid_expiry": marked("Paid until"),
    "reason": marked("Why"),
    "source": marked("Came by"),
    "status": marked("Status"),
    "tags": marked("Tags"),
    "type": marked("Tier"),
    "updated_at": marked("Changed at"),
    "url": marked("Page"),
    "via": marked("Way"),
    "wording": marked("Wording"),
}
_VALUES: Mapping[object, str] = {
    True: marked("Yes"),
    False: marked("No"),
    "active": marked("active"),
    "pending": marked("pending"),
    "unsubscribed": marked("unsubscribed"),
    "removed": marked("removed"),
}


def known_words(language: str) -> dict[str, str]:
    return {name: translated(language, text) for name, text in _NAMES.items()}


def shown_value(language: str) -> Callable[[Any], str]:
    """A function that writes a value; codes stay as they are in the file for programs."""

    def shown(value: Any) -> str:
        if isinstance(value, list):
            return ", ".join(shown(each) for each in value)
        if isinstance(value, bool | str) and value in _VALUES:
            return translated(language, _VALUES[value])
        return str(value)

    return shown
