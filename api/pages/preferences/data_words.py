"""Translates the names and values of a reader's stored data into the reader's language."""

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from typing import Any

from babel import Locale
from babel.dates import format_date, format_time

from api.pages.preferences.actions import REASONS
from core.languages.reader_languages import ENGLISH, marked, translate

_NAMES = {
    "action": marked("Event"),
    "actor": marked("By"),
    "bounced_at": marked("Date"),
    "browser": marked("Browser"),
    "changed": marked("Changed"),
    "claimed_by": marked("Stated by"),
    "created_at": marked("Date"),
    "email": marked("E-mail address"),
    "email_enabled": marked("You receive e-mails"),
    "engagement": marked("Opens and clicks"),
    "engagement_choice": marked("May this list count your opens?"),
    "how": marked("Method"),
    "imported_at": marked("Imported on"),
    "ip": marked("IP address"),
    "joined_at": marked("Joined on"),
    "kind": marked("Opted out of"),
    "language": marked("Language"),
    "list": marked("List"),
    "name": marked("Name"),
    "occurred_at": marked("Date"),
    "origin": marked("Origin"),
    "paid_expiry": marked("Paid until"),
    "reason": marked("Reason"),
    "source": marked("Source"),
    "status": marked("Status"),
    "tags": marked("Tags"),
    "type": marked("Tier"),
    "updated_at": marked("Last changed"),
    "url": marked("Page"),
    "via": marked("Via"),
    "wording": marked("Consent text"),
}
# Maps each attribute with coded values, such as the status, to the text for each code. Text that
# people wrote, such as a name, isn't translated.
_CODES: Mapping[str, Mapping[str, str]] = {
    "status": {
        "active": marked("active"),
        "pending": marked("waiting for your confirmation"),
        "unsubscribed": marked("unsubscribed"),
        "removed": marked("removed"),
    },
    "actor": {
        "user": marked("you"),
        "owner": marked("the owner"),
        "stranger": marked("someone who entered your address"),
        "operator": marked("the operators of this service"),
        "import": marked("an import by the owner"),
        "sender": marked("the sender of the e-mails"),
    },
    "action": {
        "requested": marked("signed up"),
        "subscribed": marked("subscribed"),
        "added": marked("added"),
        "confirmed": marked("confirmed"),
        "unsubscribed": marked("unsubscribed"),
        "unsubscribing_undone": marked("subscribed again"),
        "email_enabled": marked("e-mails turned on"),
        "email_disabled": marked("e-mails turned off"),
        "removed": marked("removed"),
        "edited": marked("changed"),
        "transferred_in": marked("transferred from another list"),
        "transferred_away": marked("transferred to another list"),
        "imported": marked("imported"),
        "import_undone": marked("import undone"),
        "bulk_undone": marked("change undone"),
        "lapsed": marked("expired without confirmation"),
        "complained": marked("reported as spam"),
        "engagement_allowed": marked("allowed the list to count opens and clicks"),
        "engagement_refused": marked("refused to let the list count opens and clicks"),
        "bounced": marked("e-mails turned off, because your address returned an e-mail"),
        "soft_bounced": marked("e-mails turned off, because your address returned several e-mails"),
    },
    "kind": {
        "list": marked("the list"),
        "email": marked("the e-mails of the list"),
        "engagement": marked("the counting of opens and clicks"),
    },
    "reason": REASONS,
}
# An imported file of bounces unsubscribes people. A reported bounce only turns their mail off.
_IMPORTED_BOUNCE = marked("unsubscribed, because your address returned an e-mail")
_PART_NAMES = {
    "utm_source": marked("Source"),
    "utm_medium": marked("Medium"),
    "utm_campaign": marked("Campaign"),
    "utm_term": marked("Search term"),
    "utm_content": marked("Link"),
    "referrer": marked("Website"),
    "landing": marked("Page"),
    "answer": marked("Answer"),
    "at": marked("Date"),
    "measured_since": marked("Counted since"),
    "delivered": marked("Delivered"),
    "opens": marked("Opened"),
    "machine_opens": marked("Opened by a program"),
    "clicks": marked("Clicked"),
    "bounces": marked("Returned"),
    "last_delivered": marked("Last delivered"),
    "last_opened": marked("Last opened"),
    "last_machine_opened": marked("Last opened by a program"),
    "last_clicked": marked("Last clicked"),
    "last_bounced": marked("Last returned"),
}
_WAYS = {
    "challenge": marked("a form"),
    "form": marked("a form"),
    "login": marked("a login"),
    "confirmation": marked("a link in an e-mail"),
    "trace": marked("a link in an e-mail"),
    "link": marked("a link in an e-mail"),
    "page": marked("a page on this site"),
    "one-click": marked("your mail app"),
    **dict.fromkeys(("import", "bounce", "complaint"), marked("an import by the owner")),
    "bulk": marked("a bulk action"),
    "command": marked("the operators of this service"),
    **dict.fromkeys(
        ("sender", "sender-complaint", "sender-unsubscribe"), marked("a report about an e-mail")
    ),
    "transfer": marked("another list"),
    "owner": marked("the owner"),
}
# Attributes that state where data came from, such as ``source``.
_NAMES_OF_WAYS = ("source", "via", "how", "claimed_by")
_YES_AND_NO = {True: marked("Yes"), False: marked("No")}


def translate_names(language: str) -> dict[str, str]:
    return {name: translate(language, text) for name, text in _NAMES.items()}


def make_value_formatter(language: str) -> Callable[[str, Any, Mapping[str, Any]], str]:
    """Return a function that takes the name and the value of an attribute, and its whole record."""
    # On English pages, dates have the same format as in the console, for example "30 Nov 2026".
    locale = "en_GB" if language == ENGLISH else language.replace("-", "_")

    def format_parts(value: Mapping[str, Any]) -> str:
        parts = (
            (
                translate(language, _PART_NAMES.get(name, name)),
                _format_part(name, part, language, locale),
            )
            for name, part in value.items()
            if part is not None
        )
        return ", ".join(f"{name}: {part}" for name, part in parts)

    def format_value(name: str, value: Any, record: Mapping[str, Any]) -> str:
        if isinstance(value, list):
            return ", ".join(str(each) for each in value)
        if isinstance(value, dict):
            return format_parts(value)
        if name == "language":
            return Locale.parse(value, sep="-").get_display_name(locale) or str(value)
        if name.endswith("_at") or name == "paid_expiry":
            return _format_moment(value, locale)
        codes = _CODES.get(name, _WAYS if name in _NAMES_OF_WAYS else {})
        text = _YES_AND_NO[value] if isinstance(value, bool) else codes.get(value)
        if (name, value, record.get("status_after")) == ("action", "bounced", "unsubscribed"):
            text = _IMPORTED_BOUNCE
        if text is None:
            return str(value).capitalize() if name == "type" else str(value)
        translated = translate(language, text)
        return translated[:1].upper() + translated[1:]

    return format_value


def _format_part(name: str, value: Any, language: str, locale: str) -> str:
    """Format a value of an origin, of the engagement, or of an answer."""
    if name == "answer":
        return translate(language, _YES_AND_NO[value == "yes"])
    if name == "at":
        return _format_moment(value, locale)
    if name == "measured_since" or name.startswith("last_"):
        return format_date(date.fromisoformat(value), locale=locale)
    return str(value)


def _format_moment(value: str, locale: str) -> str:
    moment = datetime.fromisoformat(value).astimezone(UTC)
    time = format_time(moment, "short", tzinfo=UTC, locale=locale)
    return f"{format_date(moment, locale=locale)}, {time}"
