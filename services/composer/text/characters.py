"""Removes invisible characters, transliterates texts, and shortens texts between words."""

import re
import unicodedata
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

_KANA = re.compile("[\u30a1-\u30ff]+|[\u3041-\u309f\u30fc]+")
# The distance between the code points of a Katakana character and the corresponding Hiragana
# character.
_KATAKANA_OFFSET = 0x60
_KATAKANA = re.compile("[\u30a1-\u30f6]")
# The kana that doubles the next consonant, and the mark that lengthens the preceding vowel.
_DOUBLING_KANA = "っ"
_LENGTH_MARK = "ー"
# Maps each vowel to the kana that lengthen it.
_LENGTHENING_KANA = {"o": "うお", "u": "う"}
# Zero-width joiners are the only invisible characters that stay, because several scripts and emoji
# need them. Invisible characters such as bidirectional overrides and zero-width spaces are removed,
# because they can mislead readers.
_JOINERS = "\u200c\u200d"
# The Unicode categories of invisible characters.
_INVISIBLE_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co"})
_MAX_MARKS_IN_A_ROW = 30
ELLIPSIS = "…"
# The punctuation that is removed before an ellipsis.
_BEFORE_ELLIPSIS = " ,;:，、；：-–—.。…([{（「《“‘"
# Characters that modify the preceding character, such as joiners and skin tones.
_MODIFIERS = "\u200c\u200d\ufe0e\ufe0f\u20e3\U0001f3fb\U0001f3fc\U0001f3fd\U0001f3fe\U0001f3ff"
_SPACES = re.compile(r"\s+")
_WIDE = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\u3000-\u303f\uff00-\uffef"
# Matches a Chinese character or the iteration mark, which also occur in Japanese texts.
CHINESE = re.compile("[\u3005\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f]")
_BOUNDARY = re.compile(rf"[\s{_WIDE}]")
# Matches a line break between two Chinese or Japanese characters, because such a line break doesn't
# separate words.
_BREAK_IN_WIDE = re.compile(rf"(?<=[{_WIDE}])[ \t]*[\r\n]\s*(?=[{_WIDE}])")


def romanise_kana(kana: str, *, verb: bool = False) -> str:
    """Romanise Japanese kana in the Hepburn system, without marks for long vowels.

    The final `u` of a Japanese verb such as `omou` is kept, because it is a separate vowel.
    """
    plain = _KATAKANA.sub(lambda match: chr(ord(match[0]) - _KATAKANA_OFFSET), kana)
    spelled = ""
    at = 0
    is_doubled = False
    while at < len(plain):
        character = plain[at]
        pair = plain[at : at + 2]
        kana_group = pair if pair in _load_syllables() else character
        syllable = _load_syllables().get(kana_group, kana_group)
        at += len(kana_group)
        if character == _DOUBLING_KANA:
            is_doubled = True
            continue
        ends_verb = verb and at == len(plain)
        is_long = character in _LENGTHENING_KANA.get(spelled[-1:], "") and len(syllable) == 1
        if character == _LENGTH_MARK or (is_long and not ends_verb):
            continue
        if is_doubled and syllable[0] not in "aiueon":
            spelled += "t" if syllable.startswith("ch") else syllable[0]
        spelled += syllable
        is_doubled = False
    return spelled


@cache
def _load_syllables() -> dict[str, str]:
    lines = Path(__file__).with_name("kana.txt").read_text("utf-8").split()
    return dict(line.split("=") for line in lines)


class CleanText(str):
    """Visible text in a single line without markup, created only by ``markup.clean_text``.

    ``clean_text`` returns it unchanged, so that no text is cleaned twice. A substring is an
    ordinary ``str``, because cutting a text can turn ordinary characters into markup.
    """

    __slots__ = ()


def remove_invisible_characters(text: str) -> str:
    """Remove invisible characters except whitespace, and normalise the text to Unicode NFC."""
    if text.isascii() and text.isprintable():
        return text
    visible = (
        character
        for character in text
        if character in _JOINERS
        or character.isspace()
        or unicodedata.category(character) not in _INVISIBLE_CATEGORIES
    )
    return unicodedata.normalize("NFC", _limit_marks(visible))


def _limit_marks(characters: Iterable[str]) -> str:
    """Shorten each sequence of combining marks, such as accents, to 30 marks.

    The limit comes from Unicode's Stream-Safe Text Format. Without it, Unicode normalisation could
    take too long, because it sorts combining marks in quadratic time.
    """
    remaining = []
    marks = 0
    for character in characters:
        marks = marks + 1 if unicodedata.combining(character) else 0
        if marks <= _MAX_MARKS_IN_A_ROW:
            remaining.append(character)
    return "".join(remaining)


def join_lines(text: str) -> str:
    if "\n" in text or "\r" in text:
        text = _BREAK_IN_WIDE.sub("", text)
    return _SPACES.sub(" ", text).strip()


def clean_line(text: str) -> str:
    return join_lines(remove_invisible_characters(text))


def transliterate(text: str) -> str:
    """Transliterate a text to ASCII, and remove Chinese characters.

    The pronunciation of Chinese characters depends on the language, which is unknown here.
    """
    if text.isascii():
        return text
    # Import the transliteration library only if it is needed, because most posts use only Latin
    # letters.
    from anyascii import anyascii

    composed = unicodedata.normalize("NFKC", text)
    return str(
        anyascii(_KANA.sub(lambda run: f" {romanise_kana(run[0])} ", CHINESE.sub(" ", composed)))
    )


def cut_at_word(text: str, max_length: int, measure: Callable[[str], int]) -> str:
    """Shorten a text to ``max_length``, if possible between two words, and append `…`."""
    if measure(text) <= max_length:
        return text
    low = 0
    high = min(len(text), max_length)
    while low < high:
        middle = (low + high + 1) // 2
        if measure(text[:middle].rstrip() + ELLIPSIS) <= max_length:
            low = middle
        else:
            high = middle - 1
    end = low
    # Cut a text inside a word only if the word takes up more than a third of the remaining text.
    # Never separate a character from its modifiers, such as accents and skin tones.
    for start in range(low, low - max(low // 3, 1), -1):
        if _BOUNDARY.search(text, start - 1, start + 1):
            end = start
            break
    else:
        while end > 1 and (text[end] in _MODIFIERS or unicodedata.combining(text[end])):
            end -= 1
    return text[:end].rstrip(_BEFORE_ELLIPSIS) + ELLIPSIS
