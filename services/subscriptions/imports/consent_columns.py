"""Uses the owner's mapping and the headers of a file to recognise its consent columns.

A consent column states consent, opting out, confirmation or a status.
"""

import re
from collections.abc import Iterable, Sequence
from enum import Enum
from functools import lru_cache

from core.errors.imports import IMPORT_COLUMN_AMBIGUOUS
from services.subscriptions.imports.column_layout import (
    FIELD_PREFIX,
    Basis,
    ColumnLayout,
    ConsentColumn,
    ConsentSubject,
)
from services.subscriptions.imports.column_vocabulary import COLUMNS, OWN_COLUMNS
from services.subscriptions.imports.known_words import (
    MAX_TEXT_CHARACTERS,
    MAX_WORD_CHARACTERS,
    fold,
    key,
    keys_of,
    load_words,
    split_words,
)
from services.subscriptions.imports.rows import SuppressionStatus

_WORDS = load_words("consent.toml")


def _column(subject: ConsentSubject, reason: SuppressionStatus | None = None) -> ConsentColumn:
    return ConsentColumn(subject, Basis.KNOWN, reason)


def _opting_out(reason: SuppressionStatus) -> ConsentColumn:
    return _column(ConsentSubject.OPTING_OUT, reason)


# The keys are also the names of the word lists in ``consent.toml``.
_KINDS = {
    "status": _column(ConsentSubject.STATUS),
    "status_or_tier": _column(ConsentSubject.STATUS)._replace(may_be_tier=True),
    "subscribed": _column(ConsentSubject.CONSENT),
    "opted_in": _column(ConsentSubject.OPTING_IN),
    "confirmed": _column(ConsentSubject.CONFIRMATION),
    "not_subscribed": _opting_out(SuppressionStatus.NOT_SUBSCRIBED),
    "unsubscribed": _opting_out(SuppressionStatus.UNSUBSCRIBED),
    "cleaned": _opting_out(SuppressionStatus.CLEANED),
    "bounced": _opting_out(SuppressionStatus.BOUNCED),
    "complained": _opting_out(SuppressionStatus.COMPLAINED),
    "soft_bounced": _opting_out(SuppressionStatus.MAY_PASS),
}
_BY_MAPPING = {role: _KINDS[role] for role in ("status", "subscribed", "unsubscribed", "confirmed")}
_BY_HEADER = {
    key(name): _KINDS[kind] for kind, names in _WORDS["headers"].items() for name in names
}
# Headers that are known to have a meaning other than consent, although a word in them may suggest
# consent.
_KNOWN_AS_OTHERS = frozenset().union(*COLUMNS.values(), OWN_COLUMNS)


def _pattern(name: str) -> re.Pattern[str]:
    return re.compile(rf"\b(?:{'|'.join(map(fold, _WORDS['phrases'][name]))})\b")


_OPTING_OUT = {name: _pattern(name) for name in ("complained", "bounced", "unsubscribed")}
# The first matching subject is used. ``status`` comes last because it also matches headers such as
# "consent status".
_OTHERS = {name: _pattern(name) for name in ("opted_in", "confirmed", "subscribed", "status")}
_CONSENTS = frozenset({"opted_in", "subscribed"})
_UNCLEAR = _pattern("unclear")
_NEGATIONS = _pattern("negations")
_ANSWERS = _pattern("answers")
_EXCLUDED = _pattern("excluded")
_NOT_ABOUT_MAIL = _pattern("not_about_mail")
_OTHER_CHANNELS = _pattern("other_channels")
_MAIL = _pattern("mail")
_SOFT = _pattern("soft")
_TIME = _pattern("time")
_ANY_WORD = [*_OPTING_OUT.values(), *_OTHERS.values(), _UNCLEAR]
_PARTS = frozenset(_WORDS["parts"]["words"])
_MAX_PART_CHARACTERS = max(map(len, _PARTS))


class Unclear(Enum):
    """Marks a header that is about consent, but doesn't state what "yes" means."""

    HEADER = "header"


def add_consent_columns(layout: ColumnLayout) -> None:
    """Add the consent columns of a file to its layout.

    ``layout.consent`` gets the columns that the mapping or their header marks as consent columns.
    ``layout.ignored_consent`` gets consent columns that the owner mapped to another role.
    ``layout.unclear`` gets columns whose header doesn't state what "yes" means.
    """
    for index, name in enumerate(layout.header):
        role = layout.mapped.get(index)
        if role in _BY_MAPPING:
            layout.consent[index] = _BY_MAPPING[role]
            continue
        if layout.product == "pressroom" and name.startswith(FIELD_PREFIX):
            # In files that Pressroom exported, these columns hold the owner's fields.
            continue
        column = read_header(name)
        if isinstance(column, ConsentColumn):
            columns = layout.consent if role is None else layout.ignored_consent
            columns[index] = column
        elif column is not None and role is None:
            layout.unclear.add(index)
    _add_product_words(layout)


def refuse_unclear(layout: ColumnLayout, indexes: Iterable[int]) -> None:
    """Raise ``import.column_ambiguous`` for the first column whose header is unclear, if any."""
    for index in indexes:
        raise IMPORT_COLUMN_AMBIGUOUS(column=layout.header[index].strip()[:MAX_WORD_CHARACTERS])


def read_header(name: str) -> ConsentColumn | Unclear | None:
    """Return the consent column that a header describes, or ``None`` for other headers."""
    return _read_beginning(name[:MAX_TEXT_CHARACTERS])


@lru_cache(1024)
def _read_beginning(name: str) -> ConsentColumn | Unclear | None:
    if column := _BY_HEADER.get(key(name)):
        return column
    text = _phrase(name)
    if key(name) in _KNOWN_AS_OTHERS or not _is_about_consent(text):
        return None
    reasons = []
    rest = _ANSWERS.sub(" ", text)
    for kind, pattern in _OPTING_OUT.items():
        if pattern.search(rest):
            reasons.append(kind)
            rest = pattern.sub(" ", rest)
    others = [kind for kind, pattern in _OTHERS.items() if pattern.search(rest)]
    if not reasons and (others in ([], ["status"])) and _NOT_ABOUT_MAIL.search(rest):
        return None
    has_both = bool(reasons) and not _CONSENTS.isdisjoint(others)
    is_negated = _NEGATIONS.search(rest) is not None and others[:1] != ["status"]
    if has_both or is_negated or not (reasons or others):
        return Unclear.HEADER
    kind = (reasons or others)[0]
    column = _KINDS["soft_bounced" if kind == "bounced" and _SOFT.search(rest) else kind]
    return column._replace(basis=Basis.WORDS, is_time=_TIME.search(text) is not None)


def _is_about_consent(text: str) -> bool:
    if _EXCLUDED.search(text) or (_OTHER_CHANNELS.search(text) and not _MAIL.search(text)):
        return False
    return any(pattern.search(text) for pattern in _ANY_WORD)


def _phrase(name: str) -> str:
    """Return the words of a header, separated by single spaces."""
    words = [part for word in split_words(name) for part in _parts_of(word)]
    return " ".join(words).replace("e mail", "email")


def _parts_of(word: str) -> Sequence[str]:
    """Split a word such as "optout" into known words, or return only ``word`` if it has none."""
    if len(word) > MAX_WORD_CHARACTERS:
        return (word,)
    splits: dict[int, tuple[str, ...]] = {0: ()}
    for end in range(1, len(word) + 1):
        for start in range(max(0, end - _MAX_PART_CHARACTERS), end):
            part = word[start:end]
            if start in splits and part in _PARTS:
                parts = (*splits[start], part)
                if end not in splits or len(parts) < len(splits[end]):
                    splits[end] = parts
    return splits.get(len(word)) or (word,)


def _add_product_words(layout: ColumnLayout) -> None:
    """Add status columns in which a product uses its own words, such as "u" for unsubscribed."""
    for product, own in _WORDS["own_columns"].items():
        for index, name in enumerate(layout.header):
            if key(name) != own["header"] or index in layout.mapped:
                continue
            column = layout.consent.get(index)
            if column is None:
                column = _KINDS["status"]._replace(basis=Basis.PRODUCT)
            elif layout.product != product:
                continue
            layout.consent[index] = column._replace(
                product=product, product_words=keys_of(own["words"])
            )
