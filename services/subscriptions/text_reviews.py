"""Reviews of suspicious texts by an operator."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import select

from models import MailingList, MemberField, User
from services.subscriptions.branding import TEXTS
from services.subscriptions.misleading_texts import suspicious_words
from storage.unit_of_work import UnitOfWork

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
