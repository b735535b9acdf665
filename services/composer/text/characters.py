"""Characters that may stand in running text, their Latin spelling, and where a text may be cut."""

import re
import unicodedata
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

_KANA = re.compile("[\u30a1-\u30ff]+|[\u3041-\u309f\u30fc]+")
# Katakana stand so far behind the Hiragana of the same sound.
_BEHIND = 0x60
_KATAKANA = re.compile("[\u30a1-\u30f6]")
_DOUBLING, _LONG = "っ", "ー"
# The vowels that a vowel before them makes long.
_LENGTHENED = {"o": "うお", "u": "う"}


def romanise_kana(kana: str, *, verb: bool = False) -> str:
    """Spell kana in Latin letters, long vowels without their marks; other characters stay.

    The last `u` of a verb is a sound of its own: `omou`.
    """
    plain = _KATAKANA.sub(lambda found: chr(ord(found[0]) - _BEHIND), kana)
    spelled = ""
    at, doubled = 0, False
    while at < len(plain):
        character, pair = plain[at], plain[at : at + 2]
        known = pair if pair in _syllables() else character
        syllable = _syllables().get(known, known)
        at += len(known)
        if character == _DOUBLING:
            doubled = True
            continue
        ends_verb = verb and at == len(plain)
        is_long = character in _LENGTHENED.get(spelled[-1:], "") and len(syllable) == 1
        if character == _LONG or (is_long and not ends_verb):
            continue
        if doubled and syllable[0] not in "aiueon":
            spelled += "t" if syllable.startswith("ch") else syllable[0]
        spelled += syllable
        doubled = False
    return spelled


@cache
def _syllables() -> dict[str, str]:
    lines = Path(__file__).with_name("kana.txt").read_text("utf-8").split()
    return dict(line.split("=") for line in lines)


# Joiners shape words of several scripts and emoji; every other invisible character can only
# mislead: bidirectional overrides, tags, zero-width spaces, private use, broken halves.
_JOINERS = "\u200c\u200d"
_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Co"})
_MAX_MARKS_IN_A_ROW = 30
ELLIPSIS = "…"
_BEFORE_ELLIPSIS = " ,;:，、；：-–—.。…([{（「《“‘"
# These never begin a character of their own: joiners, variation selectors, shades of skin.
_CLINGING = "\u200c\u200d\ufe0e\ufe0f\u20e3\U0001f3fb\U0001f3fc\U0001f3fd\U0001f3fe\U0001f3ff"
_SPACES = re.compile(r"\s+")
_WIDE = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\u3000-\u303f\uff00-\uffef"
# Chinese characters, of which Japanese has as many, and the mark that repeats one.
CHINESE = re.compile("[\u3005\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f]")
_BOUNDARY = re.compile(rf"[\s{_WIDE}]")
# Scripts without spaces break lines anywhere.
_BREAK_IN_WIDE = re.compile(rf"(?<=[{_WIDE}])[ \t]*[\r\n]\s*(?=[{_WIDE}])")


class CleanText(str):
    """A line of visible text without markup, made by ``markup.clean_text`` alone.

    Cleaning it again changes nothing, so it is cleaned once. A part of it is an ordinary string:
    characters that meant nothing within the whole may be markup there.
    """

    __slots__ = ()


def remove_invisible_characters(text: str) -> str:
    """Remove invisible characters except whitespace, and compose the text (Unicode NFC)."""
    if text.isascii() and text.isprintable():
        return text
    visible = (
        character
        for character in text
        if character in _JOINERS
        or character.isspace()
        or unicodedata.category(character) not in _INVISIBLE
    )
    return unicodedata.normalize("NFC", _limit_marks(visible))


def _limit_marks(characters: Iterable[str]) -> str:
    """Remove combining marks, such as accents, after the first 30 in a row.

    The limit is from Unicode's Stream-Safe Text Format, and real text stays far below the limit.
    Unicode normalisation sorts consecutive marks in quadratic time, so a long run would take too
    long.
    """
    kept = []
    marks = 0
    for character in characters:
        marks = marks + 1 if unicodedata.combining(character) else 0
        if marks <= _MAX_MARKS_IN_A_ROW:
            kept.append(character)
    return "".join(kept)


def join_lines(text: str) -> str:
    if "\n" in text or "\r" in text:
        text = _BREAK_IN_WIDE.sub("", text)
    return _SPACES.sub(" ", text).strip()


def clean_line(text: str) -> str:
    return join_lines(remove_invisible_characters(text))


def transliterate(text: str) -> str:
    """The text in ASCII, but for Chinese: how it sounds depends on the language."""
    if text.isascii():
        return text
    # Imported late: only posts of other scripts need it.
    from anyascii import anyascii

    composed = unicodedata.normalize("NFKC", text)
    return str(
        anyascii(_KANA.sub(lambda run: f" {romanise_kana(run[0])} ", CHINESE.sub(" ", composed)))
    )


def cut_at_word(text: str, max_length: int, measure: Callable[[str], int]) -> str:
    """The text itself if it measures no more; else its beginning and `…`, cut between words."""
    if measure(text) <= max_length:
        return text
    low, high = 0, min(len(text), max_length)
    while low < high:
        middle = (low + high + 1) // 2
        if measure(text[:middle].rstrip() + ELLIPSIS) <= max_length:
            low = middle
        else:
            high = middle - 1
    end = low
    # A word longer than a third of the room is broken, though not within one character.
    for start in range(low, low - max(low // 3, 1), -1):
        if _BOUNDARY.search(text, start - 1, start + 1):
            end = start
            break
    else:
        while end > 1 and (text[end] in _CLINGING or unicodedata.combining(text[end])):
            end -= 1
    return text[:end].rstrip(_BEFORE_ELLIPSIS) + ELLIPSIS
