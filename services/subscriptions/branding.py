"""How a list looks to readers: a colour, a logo, who its mails are from, and its owner's words.

Readers trust the pages and mails of an installation, and an owner may be anybody. The words are
plain text, and a mail that a stranger can have sent shows few of them.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select

from core.errors import DomainError
from core.errors import mailing as errors
from core.languages.shown_lines import is_plain
from core.settings import Settings
from models import Attachment, AttachmentStatus, MailingList
from services.subscriptions.colours import LIGHT_GROUND, MIN_CONTRAST, contrast
from services.subscriptions.misleading_texts import require_harmless, require_other_name
from storage.unit_of_work import UnitOfWork

MAX_SENDER_CHARACTERS = 40
MAX_PAGE_TEXT_CHARACTERS = 1_000
MAX_MAIL_TEXT_CHARACTERS = 200
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
