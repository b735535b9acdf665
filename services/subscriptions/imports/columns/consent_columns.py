"""Recognises the consent columns of a file by the owner's column mapping or by their headers.

A consent column states a status, or whether the person has consented, opted out or confirmed.
"""

import re
from collections.abc import Iterable, Sequence
from enum import Enum
from functools import lru_cache

from core.errors.imports import IMPORT_COLUMN_AMBIGUOUS
from services.subscriptions.imports.columns.column_layout import (
    FIELD_PREFIX,
    Basis,
    ColumnLayout,
    ConsentColumn,
    ConsentSubject,
)
from services.subscriptions.imports.columns.column_vocabulary import COLUMNS, OWN_COLUMNS
from services.subscriptions.imports.columns.known_words import (
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
# Maps each kind of opt-out column to the status that "yes" means. ``None`` stands for an unclear
# meaning.
_OPT_OUT_REASONS = {
    "not_subscribed": SuppressionStatus.NOT_SUBSCRIBED,
    "unsubscribed": SuppressionStatus.UNSUBSCRIBED,
    "cleaned": SuppressionStatus.CLEANED,
    "bounced": SuppressionStatus.BOUNCED,
    "complained": SuppressionStatus.COMPLAINED,
    "soft_bounced": SuppressionStatus.MAY_PASS,
    "refused": None,
}
# Maps the name of each kind of consent column to a ``ConsentColumn``. The file ``consent.toml``
# lists the known headers of each kind of consent column.
_KINDS = {
    "status": ConsentColumn(ConsentSubject.STATUS, Basis.KNOWN),
    "status_or_tier": ConsentColumn(ConsentSubject.STATUS, Basis.KNOWN, may_be_tier=True),
    "subscribed": ConsentColumn(ConsentSubject.CONSENT, Basis.KNOWN),
    "numbered_status": ConsentColumn(ConsentSubject.STATUS, Basis.WORDS, may_be_number=True),
    "agreed": ConsentColumn(ConsentSubject.CONSENT, Basis.KNOWN),
    "opted_in": ConsentColumn(ConsentSubject.OPTING_IN, Basis.KNOWN),
    "permission": ConsentColumn(ConsentSubject.OPTING_IN, Basis.WORDS, needs_answer=True),
    "holding": ConsentColumn(ConsentSubject.HOLDING, Basis.WORDS),
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
# The first kind whose pattern matches a header determines the subject of the column. The kind
# ``status`` must be the last one, because headers such as "consent status" also match its pattern.
_OTHER_KINDS = ("opted_in", "confirmed", "subscribed", "agreed", "permission", "holding", "status")
_CONSENT_KINDS = frozenset({"opted_in", "subscribed", "agreed", "permission"})
# Kinds that are unrelated to mail if the header names something else, such as an order.
_STATUS_KINDS = frozenset({"confirmed", "holding", "status"})
# The kinds of columns about a person's wish, which can concern something other than mail.
_WISH_KINDS = _CONSENT_KINDS | {"unsubscribed", "refused", "unclear"}
# The kinds of headers that need no other word about consent than a word for mail.
_MAIL_KINDS = frozenset({"refused", "newsletter"})
# Matches words such as "opt in". A header with such a word concerns mail only if it has no unknown
# words.
_OPTING = re.compile(r"\bopt(?:ed)? ?(?:in|out)\b")
# Match "do not e-mail" and "do not mail". Next to the first header, the second one means post.
_NO_EMAIL = re.compile(r"\b(?:do not|don t|dont|never) (?:\w+ ){0,3}emails?\b")
_NO_MAIL = re.compile(r"\b(?:do not|don t|dont|never) (?:\w+ ){0,3}mails?\b")
# Matches the place between the parts of a German compound such as "Fotoeinwilligung".
_COMPOUND = re.compile(
    r"(?<=\w)(?=einwillig|zustimm|einverstand|widerspr|sperre)|(?<=\bstatus)(?=\w)"
)
# Matches the blank in "e mail" and in the words for e-mail in other languages.
_SPLIT_EMAIL = re.compile(r"\be (?=mail|posta?\b)")
# The words into which headers without spaces, such as "optout", can be split.
_PARTS = frozenset(_WORDS["parts"]["words"])
_MAX_PART_CHARACTERS = max(map(len, _PARTS))
# The headers of the status columns of single products.
_STATUS_HEADERS = frozenset(each["header"] for each in _WORDS["own_columns"].values())


class Unclear(Enum):
    """A marker for a header that is about consent but doesn't reveal what "yes" means."""

    HEADER = "header"


def add_consent_columns(layout: ColumnLayout) -> None:
    """Find the consent columns of a file, and add them to the layout.

    If the owner has assigned another role to a consent column, the meaning of the header is added
    to ``layout.ignored_consent``. Columns whose header doesn't reveal what "yes" means are added to
    ``layout.unclear``.
    """
    for index, name in enumerate(layout.header):
        role = layout.mapped.get(index)
        if role in _COLUMNS_BY_ROLE:
            layout.consent[index] = _COLUMNS_BY_ROLE[role]
        if layout.product == "pressroom" and name.startswith(FIELD_PREFIX):
            # In exports from Pressroom, a header that begins with ``fields.`` belongs to one of the
            # owner's fields.
            continue
        column = recognise_header(name)
        if isinstance(column, ConsentColumn):
            if role is None:
                layout.consent[index] = column
            elif role != column.subject.role:
                layout.ignored_consent[index] = column
        elif column is not None and role is None:
            layout.unclear.add(index)
    _doubt_postal_opt_outs(layout)
    _add_product_words(layout)


def refuse_unclear_columns(layout: ColumnLayout, indexes: Iterable[int]) -> None:
    for index in indexes:
        raise IMPORT_COLUMN_AMBIGUOUS(column=layout.header[index].strip()[:MAX_WORD_CHARACTERS])


def recognise_header(name: str) -> ConsentColumn | Unclear | None:
    return _recognise_beginning(name[:MAX_TEXT_CHARACTERS])


@lru_cache(1024)
def has_consent_word(name: str) -> bool:
    """Return whether a header contains a word about consent, opting out or a status. Only the
    beginning of a header counts, because ``split_words`` returns no other words.
    """
    reasons, kinds, rest = _find_kinds(_normalise_header(name))
    return bool(reasons or kinds) or _PATTERNS["unclear"].search(rest) is not None


def is_status_header(name: str) -> bool:
    return normalise_word(name) in _STATUS_HEADERS


@lru_cache(1024)
def names_other_subject(name: str) -> bool:
    """Return whether a header is about a status of, or consent to, something other than mail.

    Status words in the cells of such a column say nothing about the person's wish for mail.
    """
    text = _normalise_header(name)
    reasons, kinds, _ = _find_kinds(text)
    if not (reasons or kinds):
        rest = _PATTERNS["other_channels"].sub(" ", text)
        return rest != text and not _names_mail(rest)
    return _is_about_something_else(text, reasons, kinds)


@lru_cache(1024)
def _recognise_beginning(name: str) -> ConsentColumn | Unclear | None:
    word = normalise_word(name)
    text = _normalise_header(name)
    column = _COLUMNS_BY_HEADER.get(word) or _COLUMNS_BY_HEADER.get(text.replace(" ", ""))
    if column is not None or word in _OTHER_HEADERS:
        return column
    reasons, kinds, rest = _find_kinds(text)
    if not (reasons or kinds or _PATTERNS["unclear"].search(rest) is not None):
        return None
    kind = (*reasons, *kinds, "unclear")[0]
    numbering = _PATTERNS["numbering"]
    is_numbered = "status" in kinds and numbering.search(text) is not None
    described = numbering.sub(" ", text) if is_numbered else text
    # In a permission column, a cell with "yes" or "no" must confirm the header.
    is_excluded = kind != "permission" and _PATTERNS["excluded"].search(described) is not None
    if is_excluded or _is_about_something_else(text, reasons, kinds):
        return None
    if is_numbered:
        return _KINDS["numbered_status"]
    is_contradictory = bool(reasons) and not _CONSENT_KINDS.isdisjoint(kinds)
    is_negated = kind not in _MAIL_KINDS and _PATTERNS["negations"].search(rest) is not None
    is_negated &= kinds[:1] != ["status"]
    has_two_subjects = kind in _WISH_KINDS and _remove_other_subjects(text, kind) != text
    may_be_about_anything = kind in ("agreed", "opted_in") or (
        kind == "unsubscribed" and _OPTING.search(text) is not None
    )
    has_unknown_subject = may_be_about_anything and _has_unknown_subject(text)
    is_unclear = kind == "unclear" or is_contradictory or is_negated
    if is_unclear or has_two_subjects or has_unknown_subject:
        return Unclear.HEADER
    if kind == "bounced" and _PATTERNS["soft"].search(rest):
        kind = "soft_bounced"
    is_time = _PATTERNS["time"].search(text) is not None
    has_status = "status" in kinds and kind != "status"
    return _KINDS[kind]._replace(basis=Basis.WORDS, is_time=is_time, may_be_number=has_status)


def _find_kinds(text: str) -> tuple[list[str], list[str], str]:
    """Return the kinds of opt-outs in a header, its other kinds, and the text without opt-outs."""
    reasons = []
    rest = text
    for kind, pattern in _OPT_OUT_PATTERNS.items():
        if pattern.search(rest):
            reasons.append(kind)
            rest = pattern.sub(" ", rest)
    kinds = [kind for kind in _OTHER_KINDS if _PATTERNS[kind].search(rest)]
    if "permission" in kinds and not _is_about_mail(rest):
        kinds.remove("permission")
    if not (reasons or kinds or _PATTERNS["unclear"].search(rest)):
        kinds = _find_mail_kinds(rest)
    return reasons, kinds, rest


def _find_mail_kinds(text: str) -> list[str]:
    """Return the kind of a header with a word for mail, and without a word about consent."""
    is_newsletter = _PATTERNS["newsletter"].search(text) is not None
    is_negated = is_newsletter and _PATTERNS["negations"].search(text) is not None
    if is_negated or (_is_about_mail(text) and _PATTERNS["refused"].search(text) is not None):
        return ["refused"]
    return ["newsletter"] if is_newsletter and _asks_about_newsletter(text) else []


def _asks_about_newsletter(text: str) -> bool:
    """A header with a further word, as in "Newsletter author", doesn't ask who wants the
    newsletter.
    """
    if _PATTERNS["issues"].search(text):
        return False
    rest = text
    for name in ("newsletter", "neutral"):
        rest = _PATTERNS[name].sub(" ", rest)
    is_last = any(match.end() == len(text) for match in _PATTERNS["newsletter"].finditer(text))
    has_other_subject = _remove_other_subjects(text, "unclear") != text
    is_object = _PATTERNS["prepositions"].search(text) is not None
    return not rest.strip() or (is_last and not has_other_subject and not is_object)


def _is_about_something_else(text: str, reasons: Sequence[str], kinds: Sequence[str]) -> bool:
    rest = _remove_other_subjects(text, (*reasons, *kinds, "unclear")[0])
    if rest != text and not _names_mail(rest):
        return True
    if reasons or not _STATUS_KINDS.issuperset(kinds):
        return False
    is_about_mail = bool(kinds) and _names_mail(text)
    return _PATTERNS["not_about_mail"].search(text) is not None and not is_about_mail


def _remove_other_subjects(text: str, kind: str) -> str:
    text = _PATTERNS["other_channels"].sub(" ", text)
    has_subject = kind == "confirmed" or kind in _WISH_KINDS
    return _PATTERNS["other_subjects"].sub(" ", text) if has_subject else text


def _is_about_mail(text: str) -> bool:
    return _names_mail(text) or _PATTERNS["marketing"].search(text) is not None


def _names_mail(text: str) -> bool:
    return any(_PATTERNS[name].search(text) is not None for name in ("mail", "newsletter"))


def _has_unknown_subject(text: str) -> bool:
    if _is_about_mail(text):
        return False
    for name in ("unsubscribed", *_OTHER_KINDS, "time", "neutral"):
        text = _PATTERNS[name].sub(" ", text)
    return bool(text.strip())


def _normalise_header(name: str) -> str:
    words = [part for word in split_words(name) for part in _split_word(word)]
    text = _SPLIT_EMAIL.sub("e", _COMPOUND.sub(" ", " ".join(words)))
    return " ".join(_PATTERNS["answers"].sub(" ", text).split())


def _split_word(word: str) -> Sequence[str]:
    """Split a word such as "optout" into the known words "opt" and "out". A word that can't be
    split into known words is returned unchanged.
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


def _doubt_postal_opt_outs(layout: ColumnLayout) -> None:
    texts = {index: _normalise_header(layout.header[index]) for index in layout.consent}
    if any(_NO_EMAIL.search(text) for text in texts.values()):
        for index, text in texts.items():
            if index not in layout.mapped and _NO_MAIL.search(text) and not _NO_EMAIL.search(text):
                del layout.consent[index]
                layout.unclear.add(index)


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
