"""Recognises the meaning of words in consent columns."""

import re
from collections.abc import Iterator
from enum import StrEnum
from functools import lru_cache
from unicodedata import category

from integrations.senders.bounce_statuses import choose_bounce_class
from integrations.senders.port import BounceClass
from services.subscriptions.formula_guard import unguard_cell
from services.subscriptions.imports.columns.dates import DateOrder, parse_date
from services.subscriptions.imports.columns.known_words import (
    MAX_TEXT_CHARACTERS,
    fold_text,
    load_words,
    normalise_word,
    normalise_words,
    split_words,
)

_WORDS = load_words("consent.toml")
_FILLERS = normalise_words(_WORDS["cell_phrases"]["fillers"])
_NEGATIONS = normalise_words(_WORDS["cell_phrases"]["negations"])
_SOFT_WORDS = normalise_words(_WORDS["cell_phrases"]["soft"])
_EXACT_WORDS = normalise_words(_WORDS["cell_phrases"]["exact"])
_GENERIC_WORDS = normalise_words(_WORDS["cell_phrases"]["generic"])
_MAIL_WORDS = normalise_words(_WORDS["cell_phrases"]["about_mail"])
_HOLDING = re.compile(rf"\b(?:{'|'.join(map(fold_text, _WORDS['phrases']['holding']))}|hold)\b")
_BOUNCE = re.compile(rf"\b(?:{'|'.join(map(fold_text, _WORDS['phrases']['bounced']))})\b")
# A "no" negates an opt-out only if at most this number of words follow the opt-out word.
_MAX_ANSWER_WORDS = 2
_ZERO_DATE = re.compile(r"0{1,4}[-/.]0{1,2}[-/.]0{1,4}(?:[t ][0:.]+z?)?\Z")
_NUMBER = re.compile(r"[+-]?\d+(?:[.,]\d+)?\Z", re.ASCII)
_ZERO = re.compile(r"[+-]?0+(?:[.,]0+)?\Z")
_ONE = re.compile(r"\+?1(?:[.,]0{1,2})?\Z")
_BLANKS = " \t\r\n\xa0\ufeff\u200b"
_MINUS = "\N{MINUS SIGN}"
# Matches a text if none of its punctuation changes the meaning of the words. For example, the
# pattern doesn't match a text with a question mark, because a question mark changes the meaning.
_PLAIN = re.compile(r"[\w\s.,;:!'\"()\[\]/&’-]*\Z")
_SOFT_REPLY = re.compile(r"(?<![\w.])4\d\d(?![\w.])", re.ASCII)
_BOUNCE_CODE = re.compile(r"(?<![\w.])[45]\.\d{1,3}\.\d{1,3}(?![\w.])", re.ASCII)
# The years in which a person can have opted out. In some newsletter products, an opt-out date
# before 1980 or after 2099 means "never".
_YEARS = range(1980, 2100)


class Meaning(StrEnum):
    """The meaning of a cell's text, regardless of the column's header."""

    EMPTY = "empty"
    BLANK = "blank"
    YES = "yes"
    NO = "no"
    DATE = "date"
    ALLOWED = "allowed"
    ACTIVE = "active"
    CUSTOMER = "customer"
    REFUSED = "refused"
    UNSUBSCRIBED = "unsubscribed"
    CLEANED = "cleaned"
    BOUNCED = "bounced"
    COMPLAINED = "complained"
    NOT_SUBSCRIBED = "not_subscribed"
    MAY_PASS = "may_pass"  # noqa: S105 - a name
    UNKNOWN = "unknown"


OPT_OUT_WORDS = frozenset(
    {
        Meaning.UNSUBSCRIBED,
        Meaning.CLEANED,
        Meaning.BOUNCED,
        Meaning.COMPLAINED,
        Meaning.REFUSED,
    }
)

_MEANINGS = {
    normalise_word(word): Meaning(meaning)
    for meaning, words in _WORDS["cells"].items()
    for word in words
}
# The words for these meanings are recognised even if other text follows the word, as in
# "unsubscribed (2024-01-02)".
_PREFIX_MEANINGS = OPT_OUT_WORDS | {Meaning.NOT_SUBSCRIBED, Meaning.MAY_PASS}
_MEMBER_WORDS = frozenset({Meaning.ALLOWED, Meaning.ACTIVE, Meaning.CUSTOMER})
_STATUS_WORDS = _PREFIX_MEANINGS | _MEMBER_WORDS
_SIGNS = {
    **dict.fromkeys(("\\n", "#n/a"), Meaning.EMPTY),
    **dict.fromkeys("✓✔☑✅", Meaning.YES),
    **dict.fromkeys("✗✘✖❌×☐", Meaning.NO),
}


def split_items(cell: str) -> Iterator[str]:
    """Yield the items of a cell that contains a list such as ``['HARD_BOUNCE']``."""
    text = unguard_cell(cell).strip()[:MAX_TEXT_CHARACTERS]
    is_list = text[:1] == "[" and text[-1:] == "]"
    # PostgreSQL formats an array with braces, as in {a,b}. If the braces contain a colon, the text
    # isn't an array but a JSON object.
    if is_list or (text[:1] == "{" and text[-1:] == "}" and ":" not in text):
        yield from (each.strip(" '\"\t") for each in text[1:-1].split(","))
    else:
        yield text


@lru_cache(4096)
def interpret_item(text: str) -> Meaning:
    folded = fold_text(text).strip(_BLANKS)
    meaning = _interpret_sign(folded)
    if meaning is not None:
        return meaning
    words = split_words(text)
    meaning = _MEANINGS.get("".join(words))
    if meaning in _PREFIX_MEANINGS or (meaning is not None and _PLAIN.match(folded)):
        return meaning
    return Meaning.DATE if is_date(text.strip(_BLANKS)) else _interpret_phrase(folded, words)


def interpret_hold(text: str) -> Meaning:
    meaning = interpret_item(text)
    words = " ".join(split_words(text))
    if meaning is not Meaning.UNKNOWN or not _HOLDING.search(words):
        return meaning
    rest = " ".join(_HOLDING.sub(" ", words).split())
    meaning = interpret_item(rest)
    if meaning is Meaning.UNKNOWN and _BOUNCE.search(rest):
        is_soft = not _SOFT_WORDS.isdisjoint(rest.split())
        return Meaning.MAY_PASS if is_soft else Meaning.BOUNCED
    # A hold without a reason states neither an opt-out nor a member.
    return meaning if meaning in _PREFIX_MEANINGS else Meaning.UNKNOWN


def has_holding_word(text: str) -> bool:
    return _HOLDING.search(" ".join(split_words(text))) is not None


def is_status_word(text: str) -> bool:
    """Return whether the whole text is a status word that isn't the name of a customer's plan."""
    meaning = _MEANINGS.get(normalise_word(text))
    return meaning in _STATUS_WORDS and meaning is not Meaning.CUSTOMER


def is_exact_word(text: str) -> bool:
    is_known = _MEANINGS.get(normalise_word(text)) in _STATUS_WORDS
    return is_known or _HOLDING.fullmatch(" ".join(split_words(text))) is not None


def is_about_mail(text: str) -> bool:
    """Return whether the whole text is a status word that always describes a person's mail."""
    word = normalise_word(text)
    meaning = _MEANINGS.get(word)
    if meaning in OPT_OUT_WORDS and meaning is not Meaning.REFUSED:
        return word not in _GENERIC_WORDS
    return meaning is Meaning.MAY_PASS or word in _MAIL_WORDS


def is_date(text: str) -> bool:
    if not any(map(str.isdecimal, text)):
        return False
    for order in DateOrder:
        try:
            moment = parse_date(text, order)
        except ValueError:
            continue
        if moment is not None and moment.year in _YEARS:
            return True
    return False


def is_numeral(text: str) -> bool:
    return _NUMBER.match(text) is not None


def is_number(text: str) -> bool:
    return _NUMBER.match(text) is not None and interpret_item(text) is Meaning.UNKNOWN


def _interpret_sign(text: str) -> Meaning | None:
    if not text or text in _SIGNS:
        return _SIGNS.get(text, Meaning.EMPTY)
    if _is_dash(text) or _ZERO_DATE.match(text):
        return Meaning.BLANK
    if _NUMBER.match(text):
        return _interpret_number(text)
    # A status word with a question mark, such as "Active?", states no status. A text such as "-1
    # active" has no clear meaning because of its minus sign.
    return Meaning.UNKNOWN if text[0] in "+-" or "?" in text else None


def _is_dash(text: str) -> bool:
    return all(category(character) == "Pd" or character == _MINUS for character in text)


def _interpret_number(text: str) -> Meaning:
    if _ZERO.match(text):
        return Meaning.NO
    if _ONE.match(text):
        return Meaning.YES
    return Meaning.DATE if is_date(text) else Meaning.UNKNOWN


def _interpret_phrase(text: str, words: list[str]) -> Meaning:
    while len(words) > 1 and words[0] in _FILLERS:
        words = words[1:]
    meaning, rest = _find_longest_word(words)
    if meaning is Meaning.UNKNOWN and len(words) > 1 and words[0] in _NEGATIONS:
        meaning, rest = _find_longest_word(words[1:])
        if meaning in _MEMBER_WORDS and not rest:
            return Meaning.NOT_SUBSCRIBED
        # "Not unsubscribed" means that a person hasn't opted out, but not that the person has
        # consented.
        return Meaning.BLANK if meaning in _PREFIX_MEANINGS and not rest else Meaning.UNKNOWN
    if meaning not in _PREFIX_MEANINGS:
        return Meaning.UNKNOWN
    if meaning is Meaning.BOUNCED and (
        _SOFT_WORDS.intersection(words)
        or _has_soft_code(text)
        or _find_longest_word(rest)[0] is Meaning.MAY_PASS
    ):
        return Meaning.MAY_PASS
    return Meaning.UNKNOWN if _has_contradiction(rest) else meaning


def _has_soft_code(text: str) -> bool:
    if code := _BOUNCE_CODE.search(text):
        return choose_bounce_class(BounceClass.HARD, code[0]) is not BounceClass.HARD
    return _SOFT_REPLY.search(text) is not None


def _find_longest_word(words: list[str]) -> tuple[Meaning, list[str]]:
    for count in range(len(words), 0, -1):
        word = "".join(words[:count])
        meaning = _MEANINGS.get(word)
        may_be_prefix = count == len(words) or word not in _EXACT_WORDS
        if meaning is not None and meaning in _STATUS_WORDS and may_be_prefix:
            return meaning, words[count:]
    return Meaning.UNKNOWN, words


def _has_contradiction(words: list[str]) -> bool:
    """Return whether the words after an opt-out word negate the word, as in "unsubscribed: no"."""
    if len(words) <= _MAX_ANSWER_WORDS and any(
        word in _NEGATIONS or _MEANINGS.get(word) is Meaning.NO or word == "0" for word in words
    ):
        return True
    return any(_MEANINGS.get(word) in _MEMBER_WORDS for word in words)
