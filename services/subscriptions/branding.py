"""Validates the colour, logo and texts that an owner sets for the pages and mails of a list.

Texts can't contain markup, because markup could mislead readers who trust Pressroom. Strangers can
trigger confirmation mails, so a list's owner can add only short texts to these mails, and no logo.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from sqlalchemy import select

from core.errors import DomainError
from core.errors import mailing as errors
from core.ids import AccountId
from core.languages.shown_lines import is_plain
from core.settings import Settings
from models import Attachment, AttachmentStatus, MailingList
from services.accounts.quoted_texts import hide_contact_details
from services.subscriptions.colours import LIGHT_GROUND, MIN_CONTRAST, compute_contrast
from services.subscriptions.misleading_texts import forbid_own_name, require_harmless
from storage.unit_of_work import UnitOfWork

MAX_SENDER_CHARACTERS = 40
MAX_PAGE_TEXT_CHARACTERS = 1_000
MAX_MAIL_TEXT_CHARACTERS = 200
MAX_ENGAGEMENT_WORDING_CHARACTERS = 300
TEXTS = {
    "sign_up_text": MAX_PAGE_TEXT_CHARACTERS,
    "thanks_text": MAX_PAGE_TEXT_CHARACTERS,
    "confirmation_text": MAX_MAIL_TEXT_CHARACTERS,
    "engagement_wording": MAX_ENGAGEMENT_WORDING_CHARACTERS,
}
_MAX_CHARACTERS = {"sender_name": MAX_SENDER_CHARACTERS, **TEXTS}
_BRAND_COLUMNS = ("colour", "logo_hash_id", "sender_name", *TEXTS)
# The columns of ``MailingList`` whose texts appear on public pages and in mails to strangers.
_PUBLIC_TEXTS = frozenset({"title", "tagline", "consent_wording", "sender_name", *TEXTS})
_COLOUR = re.compile(r"#[0-9a-f]{6}\Z")
# A sender name can't contain characters that have a special meaning in the From header of a mail.
_FORBIDDEN_IN_NAMES = re.compile(r"[<>\"()\[\]@,;:\\]|=\?")


@dataclass(frozen=True)
class Look:
    colour: str | None = None
    logo_url: str | None = None


class MailHeader(TypedDict):
    list_name: str
    colour: str | None
    logo_url: str | None


def validate_values(settings: Settings, values: Mapping[str, Any]) -> dict[str, Any]:
    """Check the length of a text first, because searching a long text is slow."""
    result = dict(values)
    for name in _BRAND_COLUMNS:
        if name in result:
            result[name] = _normalise_text(name, (result[name] or "").strip()) or None
    texts = {name: result[name] for name in _MAX_CHARACTERS if result.get(name)}
    for name, text in texts.items():
        if len(text) > _MAX_CHARACTERS[name]:
            raise _create_text_error(name)
    for name in _PUBLIC_TEXTS & result.keys():
        require_harmless(name, result[name])
    if "sender_name" in result:
        forbid_own_name(settings, "sender_name", result["sender_name"])
    for name, text in texts.items():
        is_name = name == "sender_name"
        if (is_name and _FORBIDDEN_IN_NAMES.search(text)) or not is_plain(text.replace("\n", " ")):
            raise _create_text_error(name)
    if result.get("colour"):
        _require_contrast(result["colour"])
    return result


def require_logo(uow: UnitOfWork, mailing_list: MailingList) -> None:
    if mailing_list.logo_hash_id is not None and _find_logo(uow, mailing_list) is None:
        raise errors.LIST_LOGO()


def find_lists_with_logo(
    uow: UnitOfWork, account_id: AccountId, hash_id: str
) -> Sequence[MailingList]:
    query = select(MailingList).where(
        MailingList.user_id == account_id,
        MailingList.logo_hash_id == hash_id,
        MailingList.archived_at.is_(None),
    )
    return uow.session.scalars(query.order_by(MailingList.title, MailingList.id)).all()


def read_look(uow: UnitOfWork, mailing_list: MailingList) -> Look:
    logo = None if mailing_list.logo_hash_id is None else _find_logo(uow, mailing_list)
    url = None if logo is None else f"{uow.settings.media_base}/media/{logo.filename}"
    return Look(mailing_list.colour, url)


def read_mail_header(uow: UnitOfWork, mailing_list: MailingList) -> MailHeader:
    look = read_look(uow, mailing_list)
    return {
        "list_name": hide_contact_details(mailing_list.title),
        "colour": look.colour,
        "logo_url": look.logo_url,
    }


def _normalise_text(name: str, text: str) -> str:
    if name == "colour":
        return text.lower()
    if name not in TEXTS:
        return text
    # Join the lines of a text for mails, because readers could mistake a second line for
    # Pressroom's own text.
    separator = "\n" if TEXTS[name] == MAX_PAGE_TEXT_CHARACTERS else " "
    return separator.join(" ".join(each.split()) for each in text.splitlines())


def _create_text_error(name: str) -> DomainError:
    max_characters = _MAX_CHARACTERS[name]
    if name == "sender_name":
        return errors.LIST_SENDER_NAME(most=max_characters)
    return errors.LIST_WORDS(name=name, most=max_characters)


def _require_contrast(colour: str) -> None:
    if not _COLOUR.match(colour):
        raise errors.LIST_COLOUR(rule="must have the form #rrggbb, such as #9f2d16")
    ratio = compute_contrast(colour, LIGHT_GROUND)
    if ratio < MIN_CONTRAST:
        # Round the contrast down in the error message, so that a rejected contrast of 4.49 doesn't
        # appear as 4.5, the allowed minimum.
        raise errors.LIST_COLOUR(
            rule=(
                f"must be darker, because its contrast to the background {LIGHT_GROUND} is "
                f"{int(ratio * 10) / 10:.1f} instead of at least {MIN_CONTRAST}"
            )
        )


def _find_logo(uow: UnitOfWork, mailing_list: MailingList) -> Attachment | None:
    return uow.session.scalar(
        select(Attachment).where(
            Attachment.hash_id == mailing_list.logo_hash_id,
            Attachment.user_id == mailing_list.user_id,
            Attachment.status == AttachmentStatus.READY,
            Attachment.encrypted.is_(False),
        )
    )
