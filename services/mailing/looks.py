"""How a list looks to readers: a colour, a logo, who its mails are from, and its owner's words.

Readers trust the pages and mails of an installation, and an owner may be anybody. So the words are
plain text that leads nowhere, and a mail that a stranger can have sent shows few of them.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import select

from core.languages.shown_lines import is_plain, without_joiners
from core.refusals import mailing as refusals
from core.settings import Settings
from models import Attachment, AttachmentStatus, MailingList
from services.people.unasked_mails import shown_words
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
_WHITE, _BLACK = "#ffffff", "#000000"

_COLOUR = re.compile(r"#[0-9a-f]{6}\Z")
# What ends a name in a mail's header, or makes other words of it.
_NO_NAME = re.compile(r"[<>\"()\[\]@,;:\\]|=\?")
_TEXTS = {
    "sign_up_text": MAX_PAGE_TEXT_CHARACTERS,
    "thanks_text": MAX_PAGE_TEXT_CHARACTERS,
    "confirmation_text": MAX_MAIL_TEXT_CHARACTERS,
}
_LOOK = ("colour", "logo_hash_id", "sender_name", *_TEXTS)
_MIXING_STEPS = 50


@dataclass(frozen=True)
class Look:
    """What a page of a list shows beside its title. ``None``: as all pages look."""

    colour: str | None = None
    logo_url: str | None = None


def settle(uow: UnitOfWork, mailing_list: MailingList, changed: Collection[str]) -> None:
    """Check what an owner set of these columns, and bring it into its one spelling.

    Raises ``list.colour``, ``list.logo``, ``list.sender_name``, ``list.words``.
    """
    chosen = {name for name in _LOOK if name in changed and getattr(mailing_list, name) is not None}
    for name in chosen:
        setattr(mailing_list, name, getattr(mailing_list, name).strip() or None)
    if mailing_list.colour is not None and "colour" in chosen:
        mailing_list.colour = mailing_list.colour.lower()
        _require_legible(mailing_list.colour)
    if mailing_list.sender_name is not None and "sender_name" in chosen:
        _require_name(mailing_list.sender_name)
    for name in chosen & _TEXTS.keys():
        text = getattr(mailing_list, name)
        if text is not None:
            setattr(mailing_list, name, _plain_text(name, text))
    has_logo = mailing_list.logo_hash_id is not None and "logo_hash_id" in chosen
    if has_logo and _logo(uow, mailing_list) is None:
        raise refusals.LIST_LOGO()


def of(uow: UnitOfWork, settings: Settings, mailing_list: MailingList) -> Look:
    """An image that is gone since is not shown."""
    logo = None if mailing_list.logo_hash_id is None else _logo(uow, mailing_list)
    url = None if logo is None else f"{settings.media_base}/media/{logo.filename}"
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


def _require_name(name: str) -> None:
    leads_away = _leads_away(name) or _NO_NAME.search(name)
    if len(name) > MAX_SENDER_CHARACTERS or leads_away or not is_plain(name):
        raise refusals.LIST_SENDER_NAME(most=MAX_SENDER_CHARACTERS)


def _plain_text(name: str, text: str) -> str:
    most = _TEXTS[name]
    lines = [" ".join(each.split()) for each in text.splitlines()]
    # In a mail the words stand in one line, so that they can't look like more than a quotation.
    plain = "\n".join(lines) if most == MAX_PAGE_TEXT_CHARACTERS else " ".join(lines)
    is_seen = is_plain(plain.replace("\n", " "))
    if len(plain) > most or _leads_away(plain) or not is_seen:
        raise refusals.LIST_WORDS(name=name, most=most)
    return plain


def _leads_away(text: str) -> bool:
    # A joiner within an address must not hide it from us: its reader does not see the joiner.
    return any(map(shown_words.leads_away, (text, without_joiners(text))))


# -- colours --------------------------------------------------------------------------------------


def _require_legible(colour: str) -> None:
    if not _COLOUR.match(colour):
        raise refusals.LIST_COLOUR(rule="is written #rrggbb, such as #9f2d16")
    found = contrast(colour, LIGHT_GROUND)
    if found < MIN_CONTRAST:
        # Rounded down: 4.49 is not enough, and must not look so.
        shown = f"{int(found * 10) / 10:.1f}"
        raise refusals.LIST_COLOUR(
            rule=f"has a contrast of {shown} to the ground of our pages, {LIGHT_GROUND}, and needs "
            f"{MIN_CONTRAST}: choose a darker one"
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
