"""Recognises the consent columns of a file by the owner's column mapping or by their headers.

A consent column states a status, or whether the person has consented, opted out or confirmed.
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
    fold_text,
    load_words,
    normalise_word,
    normalise_words,
    split_words,
)
from services.subscriptions.imports.rows import SuppressionStatus

_WORDS = load_words("consent.toml")
# Maps each kind of opt-out column to the status that "yes" means.
_OPT_OUT_REASONS = {
    "not_subscribed": SuppressionStatus.NOT_SUBSCRIBED,
    "unsubscribed": SuppressionStatus.UNSUBSCRIBED,
    "cleaned": SuppressionStatus.CLEANED,
    "bounced": SuppressionStatus.BOUNCED,
    "complained": SuppressionStatus.COMPLAINED,
    "soft_bounced": SuppressionStatus.MAY_PASS,
}
# Maps the name of each kind of consent column to a ``ConsentColumn``. The file ``consent.toml``
# lists the known headers of each kind of consent column.
_KINDS = {
    "status": ConsentColumn(ConsentSubject.STATUS, Basis.KNOWN),
    "status_or_tier": ConsentColumn(ConsentSubject.STATUS, Basis.KNOWN, may_be_tier=True),
    "subscribed": ConsentColumn(ConsentSubject.CONSENT, Basis.KNOWN),
    "opted_in": ConsentColumn(ConsentSubject.OPTING_IN, Basis.KNOWN),
    "newsletter": ConsentColumn(ConsentSubject.OPTING_IN, Basis.WORDS, needs_answer=True),
    "confirmed": ConsentColumn(ConsentSubject.CONFIRMATION, Basis.KNOWN),
    **{
        kind: ConsentColumn(ConsentSubject.OPTING_OUT, Basis.KNOWN, reason)
        for kind, reason in _OPT_OUT_REASONS.items()
    },
}
_COLUMNS_BY_ROLE = {
    role: _KINDS[role] for role in ("status", "subscribed", "unsubscribed", "confirmed")
}
_COLUMNS_BY_HEADER = {
    normalise_word(name): _KINDS[kind]
    for kind, names in _WORDS["headers"].items()
    for name in names
}
# Known headers of columns that aren't about consent, although a word in the header may suggest
# consent.
_OTHER_HEADERS = frozenset().union(*COLUMNS.values(), OWN_COLUMNS)
# Maps the names of the phrase lists in ``consent.toml`` to patterns that match any phrase in the
# list.
_PATTERNS = {
    name: re.compile(rf"\b(?:{'|'.join(map(fold_text, phrases))})\b")
    for name, phrases in _WORDS["phrases"].items()
}
_OPT_OUT_PATTERNS = {name: _PATTERNS[name] for name in ("complained", "bounced", "unsubscribed")}
# The first pattern that matches a header determines the subject of the column. The pattern
# ``status`` must be the last one, because headers such as "consent status" also match the pattern.
_OTHER_PATTERNS = {
    name: _PATTERNS[name] for name in ("opted_in", "confirmed", "subscribed", "status")
}
_CONSENT_KINDS = frozenset({"opted_in", "subscribed"})
_UNCLEAR = _PATTERNS["unclear"]
_NEGATIONS = _PATTERNS["negations"]
_ANSWERS = _PATTERNS["answers"]
_EXCLUDED = _PATTERNS["excluded"]
_NOT_ABOUT_MAIL = _PATTERNS["not_about_mail"]
_OTHER_CHANNELS = _PATTERNS["other_channels"]
_MAIL = _PATTERNS["mail"]
_SOFT = _PATTERNS["soft"]
_TIME = _PATTERNS["time"]
_ANY_WORD = [*_OPT_OUT_PATTERNS.values(), *_OTHER_PATTERNS.values(), _UNCLEAR]
# The words into which headers without spaces, such as "optout", can be split.
_PARTS = frozenset(_WORDS["parts"]["words"])
_MAX_PART_CHARACTERS = max(map(len, _PARTS))


class Unclear(Enum):
    """A marker for a header that is about consent but doesn't reveal what "yes" means."""

    HEADER = "header"


def add_consent_columns(layout: ColumnLayout) -> None:
    """Find the consent columns of a file, and add them to the layout.

    Columns that are consent columns according to the owner's column mapping or to the header are
    added to ``layout.consent``. Consent columns that the owner has assigned to other roles are
    added to ``layout.ignored_consent``. Columns whose header doesn't reveal what "yes" means are
    added to ``layout.unclear``.
    """
    for index, name in enumerate(layout.header):
        role = layout.mapped.get(index)
        if role in _COLUMNS_BY_ROLE:
            layout.consent[index] = _COLUMNS_BY_ROLE[role]
            continue
        if layout.product == "pressroom" and name.startswith(FIELD_PREFIX):
            # In exports from Pressroom, a header that begins with ``fields.`` belongs to one of the
            # owner's fields.
            continue
        column = recognise_header(name)
        if isinstance(column, ConsentColumn):
            columns = layout.consent if role is None else layout.ignored_consent
            columns[index] = column
        elif column is not None and role is None:
            layout.unclear.add(index)
    _add_product_words(layout)


def refuse_unclear_columns(layout: ColumnLayout, indexes: Iterable[int]) -> None:
    """Raise ``import.column_ambiguous`` if ``indexes`` contains a column with an unclear header."""
    for index in indexes:
        raise IMPORT_COLUMN_AMBIGUOUS(column=layout.header[index].strip()[:MAX_WORD_CHARACTERS])


def recognise_header(name: str) -> ConsentColumn | Unclear | None:
    """Return the consent column that a header describes, or ``None`` for any other header."""
    return _recognise_beginning(name[:MAX_TEXT_CHARACTERS])


@lru_cache(1024)
def _recognise_beginning(name: str) -> ConsentColumn | Unclear | None:
    if column := _COLUMNS_BY_HEADER.get(normalise_word(name)):
        return column
    text = _normalise_header(name)
    if normalise_word(name) in _OTHER_HEADERS or not _is_about_consent(text):
        return None
    reasons = []
    rest = _ANSWERS.sub(" ", text)
    for kind, pattern in _OPT_OUT_PATTERNS.items():
        if pattern.search(rest):
            reasons.append(kind)
            rest = pattern.sub(" ", rest)
    kinds = [kind for kind, pattern in _OTHER_PATTERNS.items() if pattern.search(rest)]
    if not reasons and (kinds in ([], ["status"])) and _NOT_ABOUT_MAIL.search(rest):
        return None
    is_contradictory = bool(reasons) and not _CONSENT_KINDS.isdisjoint(kinds)
    is_negated = _NEGATIONS.search(rest) is not None and kinds[:1] != ["status"]
    if is_contradictory or is_negated or not (reasons or kinds):
        return Unclear.HEADER
    kind = (reasons or kinds)[0]
    column = _KINDS["soft_bounced" if kind == "bounced" and _SOFT.search(rest) else kind]
    return column._replace(basis=Basis.WORDS, is_time=_TIME.search(text) is not None)


def _is_about_consent(text: str) -> bool:
    if _EXCLUDED.search(text) or (_OTHER_CHANNELS.search(text) and not _MAIL.search(text)):
        return False
    return any(pattern.search(text) for pattern in _ANY_WORD)


def _normalise_header(name: str) -> str:
    """Return the words of a column header in lower case, separated by spaces."""
    words = [part for word in split_words(name) for part in _split_word(word)]
    return " ".join(words).replace("e mail", "email")


def _split_word(word: str) -> Sequence[str]:
    """Split a word such as "optout" into the known words "opt" and "out".

    A word that can't be split into known words is returned unchanged.
    """
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
    """Add status columns with words of a single product, such as "u" for unsubscribed."""
    for product, own_column in _WORDS["own_columns"].items():
        for index, name in enumerate(layout.header):
            if normalise_word(name) != own_column["header"] or index in layout.mapped:
                continue
            column = layout.consent.get(index)
            if column is None:
                column = _KINDS["status"]._replace(basis=Basis.PRODUCT)
            elif layout.product != product:
                continue
            layout.consent[index] = column._replace(
                product=product, product_words=normalise_words(own_column["words"])
            )
