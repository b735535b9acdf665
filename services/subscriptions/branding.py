"""How a list looks to readers: a colour, a logo, who its mails are from, and its owner's words.

Readers trust the pages and mails of an installation, and an owner may be anybody. The words are
plain text, and a mail that a stranger can have sent shows few of them.
"""

import hashlib
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from sqlalchemy import select

from core.errors import DomainError
from core.errors import mailing as errors
from core.errors.mailing import TEXT_LEADS_AWAY, TEXT_MISLEADING
from core.languages.shown_lines import folded_words, has_direction, is_plain
from core.settings import Settings
from models import Attachment, AttachmentStatus, MailingList, MemberField, User
from services.accounts import unsolicited_mail
from storage.unit_of_work import UnitOfWork

MIN_CONTRAST = 4.5  # WCAG 2.2, 1.4.3
MAX_SENDER_CHARACTERS = 40
MAX_PAGE_TEXT_CHARACTERS = 1_000
MAX_MAIL_TEXT_CHARACTERS = 200

# The grounds of pages on which a colour is hardest to read, as style.css has them: in light and in
# dark windows.
LIGHT_GROUND = "#f6f2ea"
DARK_GROUND = "#212125"
DARK_INK = "#161618"
# The accent of pages that have no other.
USUAL_COLOUR = "#9f2d16"
_WHITE, _BLACK = "#ffffff", "#000000"

_COLOUR = re.compile(r"#[0-9a-f]{6}\Z")
# These end a name in a mail's header, or make other words of it.
_NO_NAME = re.compile(r"[<>\"()\[\]@,;:\\]|=\?")
TEXTS = {
    "sign_up_text": MAX_PAGE_TEXT_CHARACTERS,
    "thanks_text": MAX_PAGE_TEXT_CHARACTERS,
    "confirmation_text": MAX_MAIL_TEXT_CHARACTERS,
}
_MAX_CHARACTERS = {"sender_name": MAX_SENDER_CHARACTERS, **TEXTS}
_LOOK = ("colour", "logo_hash_id", "sender_name", *TEXTS)
# The texts of a list that strangers can see on public pages and in mails.
_SHOWN = frozenset({"title", "tagline", "consent_wording", "sender_name", *TEXTS})
_MIXING_STEPS = 50


@dataclass(frozen=True)
class Look:
    """The colour and logo that a page of a list shows; ``None`` for the usual look."""

    colour: str | None = None
    logo_url: str | None = None


def checked(settings: Settings, values: Mapping[str, Any]) -> dict[str, Any]:
    """Check the values that an owner set for a list, and return them normalised.

    Overlong texts are rejected first, because the search for links and misleading words is slow.
    Raises ``list.colour``, ``list.sender_name``, ``list.words``, ``text.leads_away``,
    ``text.misleading``.
    """
    checked = dict(values)
    for name in _LOOK:
        if name in checked:
            checked[name] = _in_one_spelling(name, (checked[name] or "").strip()) or None
    words = {name: checked[name] for name in _MAX_CHARACTERS if checked.get(name)}
    for name, text in words.items():
        if len(text) > _MAX_CHARACTERS[name]:
            raise _refusal(name)
    for name in _SHOWN & checked.keys():
        require_harmless(name, checked[name])
    if "sender_name" in checked:
        require_other_name(settings, "sender_name", checked["sender_name"])
    for name, text in words.items():
        is_name = name == "sender_name"
        if (is_name and _NO_NAME.search(text)) or not is_plain(text.replace("\n", " ")):
            raise _refusal(name)
    if checked.get("colour"):
        _require_contrast(checked["colour"])
    return checked


def require_logo(uow: UnitOfWork, mailing_list: MailingList) -> None:
    """Raise the error ``list.logo`` if the logo isn't a public image of the list's owner."""
    if mailing_list.logo_hash_id is not None and _logo(uow, mailing_list) is None:
        raise errors.LIST_LOGO()


def _in_one_spelling(name: str, text: str) -> str:
    if name == "colour":
        return text.lower()
    if name not in TEXTS:
        return text
    # A mail quotes this text in a single line. Otherwise a line of the text could look like part of
    # the mail.
    end = "\n" if TEXTS[name] == MAX_PAGE_TEXT_CHARACTERS else " "
    return end.join(" ".join(each.split()) for each in text.splitlines())


def _refusal(name: str) -> DomainError:
    most = _MAX_CHARACTERS[name]
    if name == "sender_name":
        return errors.LIST_SENDER_NAME(most=most)
    return errors.LIST_WORDS(name=name, most=most)


def _require_contrast(colour: str) -> None:
    if not _COLOUR.match(colour):
        raise errors.LIST_COLOUR(rule="is written #rrggbb, such as #9f2d16")
    ratio = contrast(colour, LIGHT_GROUND)
    if ratio < MIN_CONTRAST:
        # Rounded down: 4.49 is not enough, and must not look so.
        raise errors.LIST_COLOUR(
            rule=f"has a contrast of {int(ratio * 10) / 10:.1f} to the ground of our pages, "
            f"{LIGHT_GROUND}, and needs {MIN_CONTRAST}: choose a darker one"
        )


def of(uow: UnitOfWork, mailing_list: MailingList) -> Look:
    """An image that is gone since is not shown."""
    logo = None if mailing_list.logo_hash_id is None else _logo(uow, mailing_list)
    url = None if logo is None else f"{uow.settings.media_base}/media/{logo.filename}"
    return Look(mailing_list.colour, url)


def _logo(uow: UnitOfWork, mailing_list: MailingList) -> Attachment | None:
    return uow.session.scalar(
        select(Attachment).where(
            Attachment.hash_id == mailing_list.logo_hash_id,
            Attachment.user_id == mailing_list.user_id,
            Attachment.status == AttachmentStatus.READY,
            Attachment.encrypted.is_(False),
        )
    )


def contrast(one: str, other: str) -> float:
    """The contrast ratio of two colours, from 1 to 21 (WCAG 2.2)."""
    darker, lighter = sorted((_luminance(one), _luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def for_dark_windows(colour: str) -> str:
    """The same colour, as much lighter as it takes to be read on a dark ground."""
    for step in range(_MIXING_STEPS + 1):
        found = mixed(colour, _WHITE, step / _MIXING_STEPS)
        if contrast(found, DARK_GROUND) >= MIN_CONTRAST:
            return found
    return _WHITE


def deeper(colour: str) -> str:
    return mixed(colour, _BLACK, 0.2)


def lighter(colour: str) -> str:
    return mixed(colour, _WHITE, 0.2)


def mixed(colour: str, other: str, share: float) -> str:
    pairs = zip(_channels(colour), _channels(other), strict=True)
    return "#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in pairs)


def _channels(colour: str) -> tuple[int, int, int]:
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return red, green, blue


def _luminance(colour: str) -> float:
    """WCAG 2.2, "relative luminance"."""
    parts = [each / 255 for each in _channels(colour)]
    red, green, blue = (
        each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4  # noqa: PLR2004
        for each in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


# Words that only may pretend are shown to the operator; nothing is refused for them.


def asks_for_secret(text: str) -> bool:
    """Return whether a label asks for a password, a PIN, a card number or a one-time code."""
    return any(_SECRET.search(_NO_SECRET.sub(" ", form)) for form in folded_words(text))


def _spaced(names: Iterable[str]) -> list[str]:
    """Return the names as phrases that may have a space between any two letters."""
    return [" ".join(folded_words(each)[0].replace(" ", "")) for each in names]


def _found(pattern: re.Pattern[str], text: str) -> list[str]:
    forms = folded_words(text)
    return list(dict.fromkeys(found[0] for form in forms for found in pattern.finditer(form)))


def _pattern(phrases: Iterable[str]) -> re.Pattern[str]:
    parts = (re.escape(each).replace(r"\*", r"\w*").replace(r"\ ", " ?") for each in phrases)
    return re.compile(rf"\b(?:{'|'.join(parts)})\b")


_PHRASES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
_SECRET, _NO_SECRET = _pattern(_PHRASES["secrets"]), _pattern(_PHRASES["honest"])
_SUSPECT = _pattern(_PHRASES["secrets"] + _PHRASES["suspicious"])


def require_harmless(name: str, text: str | None) -> None:
    """Raise ``text.leads_away`` for a text that leads elsewhere or turns what stands beside it.

    Args:
        name: the field of the body that has the text.
    """
    if text is not None and not is_harmless(text):
        raise TEXT_LEADS_AWAY(name=name)


def is_harmless(text: str) -> bool:
    return not has_direction(text) and not unsolicited_mail.leads_away(text)


def require_no_secret(name: str, text: str | None) -> None:
    """Raise ``text.misleading`` for a label that asks for what nobody tells a newsletter."""
    if text is not None and asks_for_secret(text):
        rule = "must not ask for passwords, PINs, card numbers or one-time codes"
        raise TEXT_MISLEADING(name=name, rule=rule)


def is_fit_for_label(text: str) -> bool:
    return is_harmless(text) and not asks_for_secret(text)


def require_other_name(settings: Settings, name: str, text: str | None) -> None:
    """Raise ``text.misleading`` for a sender that has the name of this installation."""
    own = settings.own_names
    if text is not None and _found(_pattern(_spaced(own)), text):
        rule = f"must not have the name of this installation in it: {' or '.join(own)}"
        raise TEXT_MISLEADING(name=name, rule=rule)


def suspicious_words(settings: Settings, texts: Iterable[str | None]) -> list[str] | None:
    """Return the words in these texts that an operator should look at, or ``None``."""
    patterns = _SUSPECT, _pattern(_spaced(settings.own_names))
    found = [word for text in texts if text for each in patterns for word in _found(each, text)]
    return list(dict.fromkeys(found)) or None


# A word alone proves nothing, so nothing is refused. A text that an operator has looked at is not
# shown again until it changes.

Kind = Literal["list", "field"]
Texts = tuple[str, ...]
# The records of each kind, the moment of their end, and the column by which the newest come first.
_RECORDS: Mapping[Kind, tuple[Any, Any, Any]] = {
    "list": (MailingList, MailingList.archived_at, MailingList.updated_at),
    "field": (MemberField, MemberField.retired_at, MemberField.id),
}


@dataclass(frozen=True)
class SuspiciousText:
    """Attributes:
    slug: of a list.
    version: changes with the texts.
    """

    kind: Kind
    id: int
    texts: Texts
    words: list[str]
    slug: str | None
    owner_id: int
    owner: str
    version: str


def texts_of(record: MailingList | MemberField) -> Texts:
    if isinstance(record, MemberField):
        return (record.label or "", *(record.choices or ()))
    # A consent wording often speaks of accounts, and is quoted as the owner's words.
    names = ("title", "tagline", "sender_name", *TEXTS)
    return tuple(getattr(record, name) or "" for name in names)


def look_at(uow: UnitOfWork, record: MailingList | MemberField, before: Texts) -> None:
    """Note the suspicious words of a record whose texts changed."""
    texts = texts_of(record)
    if texts != before:
        record.suspicious_words = suspicious_words(uow.settings, texts)


def found(uow: UnitOfWork, *, limit: int) -> list[SuspiciousText]:
    """Return the lists and fields with suspicious words that nobody has looked at.

    Args:
        limit: of each of the two.
    """
    shown = []
    for kind, (record, ended_at, newest) in _RECORDS.items():
        suspicious = record.suspicious_words.is_not(None), ended_at.is_(None)
        query = select(record, User.email).join(User, User.id == record.user_id).where(*suspicious)
        rows = uow.session.execute(query.order_by(newest.desc()).limit(limit)).all()
        shown += [_shown(kind, each, owner) for each, owner in rows]
    return shown


def mark_reviewed(uow: UnitOfWork, kind: Kind, record_id: int, version: str) -> bool:
    """Return whether the texts are those that were looked at; then they are shown no more."""
    model, *_ = _RECORDS[kind]
    record = uow.session.get(model, record_id, with_for_update=True)
    if record is None or _version(texts_of(record)) != version:
        return False
    record.suspicious_words = None
    return True


def _shown(kind: Kind, record: MailingList | MemberField, owner: str) -> SuspiciousText:
    texts = texts_of(record)
    return SuspiciousText(
        kind,
        record.id,
        tuple(each for each in texts if each),
        record.suspicious_words or [],
        record.slug if isinstance(record, MailingList) else None,
        record.user_id,
        owner,
        _version(texts),
    )


def _version(texts: Texts) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]
