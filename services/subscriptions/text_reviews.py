"""Reviews of suspicious texts by an operator.

After an operator has reviewed a text, the text is not listed again until it changes.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import and_, select

from models import MailingList, MemberField, User
from services.subscriptions.branding import TEXTS
from services.subscriptions.misleading_texts import suspicious_words
from storage.unit_of_work import UnitOfWork

Kind = Literal["list", "field"]
Texts = tuple[str, ...]
# Per kind: the model, the column with the end of a record, and a column that rises with time.
_RECORDS: Mapping[Kind, tuple[Any, Any, Any]] = {
    "list": (MailingList, MailingList.archived_at, MailingList.updated_at),
    "field": (MemberField, MemberField.retired_at, MemberField.id),
}


@dataclass(frozen=True)
class SuspiciousText:
    """The texts of a list or field, with the suspicious words in them.

    Attributes:
        slug: the slug of a list; ``None`` for a field.
        version: a digest of the texts, so that a review applies only to the texts that were seen.
    """

    kind: Kind
    id: int
    texts: Texts
    words: list[str]
    slug: str | None
    owner_id: int
    owner: str
    version: str


def reviewed_texts(record: MailingList | MemberField) -> Texts:
    """Return the texts of a list or field that are searched for suspicious words."""
    if isinstance(record, MemberField):
        return (record.label or "", *(record.choices or ()))
    # The consent wording is left out, because it often mentions accounts. It is shown as a quote.
    names = ("title", "tagline", "sender_name", *TEXTS)
    return tuple(getattr(record, name) or "" for name in names)


def update_suspicion(uow: UnitOfWork, record: MailingList | MemberField, before: Texts) -> None:
    """Store the suspicious words of a record if its texts differ from ``before``."""
    texts = reviewed_texts(record)
    if texts != before:
        record.suspicious_words = suspicious_words(uow.settings, texts)


def list_suspicious(uow: UnitOfWork, *, limit: int) -> list[SuspiciousText]:
    """Return the lists and fields with suspicious words that no operator has reviewed.

    Args:
        limit: the maximum number of lists, and of fields.
    """
    result = []
    for kind, (model, ended_at, rises_with_time) in _RECORDS.items():
        is_suspicious = and_(model.suspicious_words.is_not(None), ended_at.is_(None))
        query = select(model, User.email).join(User, User.id == model.user_id).where(is_suspicious)
        rows = uow.session.execute(query.order_by(rises_with_time.desc()).limit(limit)).all()
        result += [_suspicious_text(kind, record, owner) for record, owner in rows]
    return result


def mark_reviewed(uow: UnitOfWork, kind: Kind, record_id: int, version: str) -> bool:
    """Mark the texts as reviewed; return false if the texts have another version."""
    model, *_ = _RECORDS[kind]
    record = uow.session.get(model, record_id, with_for_update=True)
    if record is None or _version(reviewed_texts(record)) != version:
        return False
    record.suspicious_words = None
    return True


def _suspicious_text(kind: Kind, record: MailingList | MemberField, owner: str) -> SuspiciousText:
    texts = reviewed_texts(record)
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
