"""Finds suspicious texts of lists and fields, for review by the operator.

A text that the operator has reviewed counts as harmless until the owner changes it.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import select

from core.ids import AccountId
from models import MailingList, MemberField, User
from services.subscriptions.branding import TEXTS
from services.subscriptions.misleading_texts import find_suspicious_words
from storage.unit_of_work import UnitOfWork

Kind = Literal["list", "field"]
Texts = tuple[str, ...]
# Maps each kind of record to its model, the column with the time of archiving or retiring, and the
# column for sorting.
_MODELS: Mapping[Kind, tuple[Any, Any, Any]] = {
    "list": (MailingList, MailingList.archived_at, MailingList.updated_at),
    "field": (MemberField, MemberField.retired_at, MemberField.id),
}


@dataclass(frozen=True)
class SuspiciousText:
    """A list, or a field without ``slug``.

    ``version`` is a digest of the texts, so that a review applies only to the texts that were read.
    """

    kind: Kind
    id: int
    texts: Texts
    words: list[str]
    slug: str | None
    owner_id: AccountId
    owner: str
    version: str


def list_reviewed_texts(record: MailingList | MemberField) -> Texts:
    if isinstance(record, MemberField):
        return (record.label or "", *(record.choices or ()))
    # Don't review the consent wording, because harmless wordings often mention accounts, and pages
    # show the wording as a quotation.
    names = ("title", "tagline", "sender_name", *TEXTS)
    return tuple(getattr(record, name) or "" for name in names)


def update_suspicion(uow: UnitOfWork, record: MailingList | MemberField, before: Texts) -> None:
    texts = list_reviewed_texts(record)
    if texts != before:
        record.suspicious_words = find_suspicious_words(uow.settings, texts)


def list_suspicious(uow: UnitOfWork, *, limit: int) -> list[SuspiciousText]:
    """Return at most ``limit`` lists and ``limit`` fields."""
    result = []
    for kind, (model, ended_at, time_column) in _MODELS.items():
        query = (
            select(model, User.email)
            .join(User, User.id == model.user_id)
            .where(model.suspicious_words.is_not(None), ended_at.is_(None))
            .order_by(time_column.desc())
            .limit(limit)
        )
        rows = uow.session.execute(query).all()
        result += [_build_suspicious_text(kind, record, owner) for record, owner in rows]
    return result


def mark_reviewed(uow: UnitOfWork, kind: Kind, record_id: int, version: str) -> bool:
    """Return whether the texts are unchanged since the operator read them."""
    model, *_ = _MODELS[kind]
    record = uow.session.get(model, record_id, with_for_update=True)
    if record is None or _compute_version(list_reviewed_texts(record)) != version:
        return False
    record.suspicious_words = None
    return True


def _build_suspicious_text(
    kind: Kind, record: MailingList | MemberField, owner: str
) -> SuspiciousText:
    texts = list_reviewed_texts(record)
    return SuspiciousText(
        kind,
        record.id,
        tuple(each for each in texts if each),
        record.suspicious_words or [],
        record.slug if isinstance(record, MailingList) else None,
        record.user_id,
        owner,
        _compute_version(texts),
    )


def _compute_version(texts: Texts) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]
