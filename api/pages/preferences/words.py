"""The choices of a reader on the pages of a subscription, and words for their data."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any

from babel.dates import format_datetime

from core.errors import DomainError, requests
from core.languages.reader_languages import marked, translated
from models import OptOutKind
from services.subscriptions.members import unsubscribe

# The values of the buttons, by which a person leaves and comes back.
OPT_OUTS = {"leave": OptOutKind.LIST, "stop_mail": OptOutKind.EMAIL}
RETURNS: dict[str, Callable[..., None]] = {
    "undo": unsubscribe.undo_leave,
    "resume_mail": partial(unsubscribe.set_email, enabled=True),
}


def unknown_action() -> DomainError:
    rule = f"one of {', '.join((*OPT_OUTS, *RETURNS))}"
    return requests.BODY_INVALID(place="body.action", rule=rule)


# Reasons for an unsubscribe, from which readers may choose one. In their own words it would be a
# letter to the owner, and no owner reads the letters of a hundred thousand. The names are in rows:
# they never change.
REASONS = {
    "too_many": marked("It comes too often."),
    "other_topics": marked("It is not, or no more, about what interests me."),
    "never_asked": marked("I never asked for it."),
    "elsewhere": marked("I read it elsewhere."),
    "other": marked("Something else."),
}


def shown_reasons(language: str) -> dict[str, str]:
    return {name: translated(language, text) for name, text in REASONS.items()}


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
# Codes, by the names whose values they are; texts of a person or an owner stay as they are.
_CODES: Mapping[str, Mapping[str, str]] = {
    "status": {
        "active": marked("active"),
        "pending": marked("pending"),
        "unsubscribed": marked("unsubscribed"),
        "removed": marked("removed"),
    },
    "actor": {
        "user": marked("you"),
        "owner": marked("the owner"),
        "stranger": marked("a person who wrote your address"),
        "operator": marked("the people who run this service"),
        "import": marked("a file of the owner"),
    },
    "action": {
        "requested": marked("asked for the list"),
        "subscribed": marked("subscribed"),
        "added": marked("added"),
        "confirmed": marked("confirmed"),
        "unsubscribed": marked("unsubscribed"),
        "unsubscribing_undone": marked("came back"),
        "email_enabled": marked("e-mails on"),
        "email_disabled": marked("e-mails off"),
        "removed": marked("removed"),
        "edited": marked("changed"),
        "transferred_in": marked("came from another list"),
        "transferred_away": marked("went to another list"),
        "imported": marked("imported"),
        "import_undone": marked("import undone"),
        "bulk_undone": marked("change undone"),
        "lapsed": marked("lapsed without a confirmation"),
    },
    "kind": {"list": marked("the list"), "email": marked("its e-mails")},
    "reason": REASONS,
}
_WAYS = {
    "challenge": marked("a form"),
    "form": marked("a form"),
    "login": marked("a login"),
    "confirmation": marked("a link in an e-mail"),
    "trace": marked("a link in an e-mail"),
    "link": marked("a link in an e-mail"),
    "page": marked("a page here"),
    "one-click": marked("your mail app"),
    "import": marked("a file of the owner"),
    "bulk": marked("a bulk action"),
    "command": marked("the people who run this service"),
    "transfer": marked("another list"),
    "owner": marked("the owner"),
}
_YES_AND_NO = {True: marked("Yes"), False: marked("No")}


def known_words(language: str) -> dict[str, str]:
    return {name: translated(language, text) for name, text in _NAMES.items()}


def shown_value(language: str) -> Callable[[str, Any], str]:
    """Return a function that writes the value of a name for people."""
    locale = language.replace("-", "_")

    def shown(name: str, value: Any) -> str:
        if isinstance(value, list):
            return ", ".join(str(each) for each in value)
        if isinstance(value, bool):
            return translated(language, _YES_AND_NO[value])
        if name.endswith("_at") or name == "paid_expiry":
            return format_datetime(datetime.fromisoformat(value), tzinfo=UTC, locale=locale)
        text = _CODES.get(name, _WAYS if name in _OF_WAYS else {}).get(value)
        return str(value) if text is None else translated(language, text)

    return shown


_OF_WAYS = ("source", "via", "how", "claimed_by")
