"""Detects an encoding other than Unicode from the cells with non-ASCII bytes.

Statistical methods can't reliably detect the encoding of a single name. The module ``western_text``
checks whether the cells look like Western European names in Windows-1252. If the cells don't look
Western European, the library chardet ranks the encodings that yield plausible words. If no encoding
is clearly the best, the owner must choose the encoding.
"""

import re
import tomllib
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from core.errors import DomainError
from core.errors.imports import IMPORT_ENCODING_NEEDED
from services.subscriptions.imports.formats.encodings import ENCODINGS, WINDOWS_1252
from services.subscriptions.imports.formats.western_text import is_western

ROWS_SHOWN = 3

# The encodings that ``encoding_detection`` can detect. The module ``decoded_text`` detects Unicode
# encodings.
_CANDIDATES = tuple(encoding for encoding in ENCODINGS if not encoding.startswith("utf"))
# Maps East Asian encodings to the languages for which the encodings are used.
_EAST_ASIAN = {
    "cp932": "japanese",
    "euc_jp": "japanese",
    "gb18030": "simplified_chinese",
    "cp950": "traditional_chinese",
    "cp949": "korean",
}
# Maps East Asian languages to the characters that are frequent in names of the language.
_NAME_CHARACTERS = {
    language: frozenset(text)
    for language, text in tomllib.loads(
        Path(__file__).with_suffix(".toml").read_text("utf-8")
    ).items()
}

_WORD = re.compile(r"[^\s.,;:()&+/|\"<>@_-]+")
_EAST_ASIAN_SCRIPTS = {"CJK", "HIRAGANA", "KATAKANA", "HANGUL", "IDEOGRAPHIC"}
_SURROUNDING_CHARACTERS = "’‘'´`“”„«»…!?¡¿"
_INNER_CHARACTERS = frozenset("’‘·´ʼ・ー々〇")
# The Unicode categories of characters that don't occur in names, such as control characters.
_INVALID_CATEGORIES = frozenset({"Cc", "Cn", "Co", "Cs"})
# An encoding is rejected if the share of plausible words is lower than ``_MIN_PLAUSIBLE_SHARE``.
_MIN_PLAUSIBLE_SHARE = 0.9
# An encoding is rejected if the share of plausible words is more than ``_SHARE_MARGIN`` below the
# highest share of any encoding.
_SHARE_MARGIN = 0.02
_MIN_WESTERN_SHARE = 0.97

# Maps chardet's names of encodings to the names in ``encodings``, if the names differ.
_NAMES_OF_CHARDET = {
    "shift_jis_2004": "cp932",
    "euc_jis_2004": "euc_jp",
    "big5hkscs": "cp950",
}
# The maximum number of bytes that the library chardet analyses.
_MAX_SAMPLE_BYTES = 64 * 1024
# Chardet's confidence in an encoding must be this many times its confidence in any rival encoding.
# The factor is higher if the text of only a few cells differs between the encodings.
_MIN_FACTOR_FEW_CELLS = 3.0
_MIN_FACTOR = 2.0
_MIN_FACTOR_MANY_CELLS = 1.2
_FEW_CELLS = 3
_MANY_CELLS = 20
# An East Asian encoding is chosen only if at least this share of the decoded characters is frequent
# in names.
_MIN_NAME_SHARE = 0.34
# If at least this share of a text's characters in an East Asian encoding is frequent in names, no
# alphabetic encoding is chosen automatically.
_RIVAL_NAME_SHARE = 0.25
_MIN_EAST_ASIAN_FACTOR = 1.5
# The Cyrillic and Greek encodings. Hebrew text decoded with a Cyrillic or Greek encoding may look
# like lower-case letters.
_CYRILLIC_AND_GREEK = frozenset({"cp1251", "koi8-r", "cp1253"})
_MIN_LOWER_CASE_WORDS = 10


class EncodingUnclear(DomainError):
    """The error ``import.encoding_needed``, which asks the owner to choose an encoding."""

    def __init__(self, readings: Mapping[str, Sequence[str]]) -> None:
        names = ", ".join(readings)
        error = IMPORT_ENCODING_NEEDED(encodings=names)
        super().__init__(error.kind, error.code, error.message)
        self.readings = readings


class _Decoding(NamedTuple):
    cells: Sequence[str]
    words: Sequence[str]
    plausible: int

    @property
    def plausible_share(self) -> float:
        return self.plausible / len(self.words) if self.words else 0.0


def detect_encoding(cells: Sequence[bytes], rows: Sequence[bytes]) -> str:
    """Detect the encoding of cells with non-ASCII bytes.

    ``rows`` contains some rows with non-ASCII bytes, which the owner sees if the encoding is
    unclear.

    Raises ``EncodingUnclear`` if no encoding is clearly the best.
    """
    decodings = _decode_cells(cells)
    if WINDOWS_1252 in decodings and all(map(is_western, decodings[WINDOWS_1252].cells)):
        return WINDOWS_1252
    possible = _select_plausible(decodings)
    if _is_mostly_western(decodings, possible):
        return WINDOWS_1252
    # Ignore cells whose text is the same in all possible encodings, because such cells don't help
    # to choose an encoding.
    texts_of_cells = zip(*(decoding.cells for decoding in possible.values()), strict=True)
    ambiguous = [
        cell for cell, texts in zip(cells, texts_of_cells, strict=False) if len({*texts}) > 1
    ]
    if ambiguous:
        decoded = _decode_cells(ambiguous)
        possible = _select_plausible({name: decoded[name] for name in possible})
    confidences = _rank_encodings(ambiguous or cells)
    best = _choose_best(possible, confidences, len(ambiguous))
    if best is None:
        raise EncodingUnclear(_decode_rows(rows, possible or decodings, confidences))
    return best


def _decode_cells(cells: Sequence[bytes]) -> dict[str, _Decoding]:
    decodings: dict[str, _Decoding] = {}
    for encoding in _CANDIDATES:
        try:
            texts = [cell.decode(encoding) for cell in cells]
        except UnicodeDecodeError:
            continue
        words = [word for text in texts for word in _WORD.findall(text) if not word.isascii()]
        plausible = sum(_is_plausible_in(encoding, word) for word in words)
        decodings[encoding] = _Decoding(texts, words, plausible)
    return decodings


def _select_plausible(decodings: Mapping[str, _Decoding]) -> dict[str, _Decoding]:
    best = max((decoding.plausible_share for decoding in decodings.values()), default=0.0)
    min_share = max(_MIN_PLAUSIBLE_SHARE, best - _SHARE_MARGIN)
    return {
        encoding: decoding
        for encoding, decoding in decodings.items()
        if decoding.plausible_share >= min_share
    }


def _is_plausible_in(encoding: str, word: str) -> bool:
    if encoding in _EAST_ASIAN:
        return _is_plausible_east_asian(word)
    return _is_plausible(word) or (encoding == WINDOWS_1252 and is_western(word))


@lru_cache(16_384)
def _is_plausible_east_asian(word: str) -> bool:
    letters = _extract_letters(word)
    return letters is not None and _find_scripts(letters) <= _EAST_ASIAN_SCRIPTS


@lru_cache(16_384)
def _is_plausible(word: str) -> bool:
    letters = _extract_letters(word)
    if not letters:
        return letters is not None
    scripts = _find_scripts(letters)
    is_latin = scripts <= {"ASCII", "LATIN"}
    return (is_latin or len(scripts) == 1) and _has_fitting_case(letters, is_latin=is_latin)


def _extract_letters(word: str) -> str | None:
    """Return the letters and accents in a word, or ``None`` for an implausible word.

    A word that starts with an accent is implausible, and so is a word with digits or non-ASCII
    symbols among its letters.
    """
    if any(
        not each.isascii() and unicodedata.category(each) in _INVALID_CATEGORIES for each in word
    ):
        return None
    core = word.strip(_SURROUNDING_CHARACTERS)
    letters = "".join(each for each in core if unicodedata.category(each)[0] in "LM")
    if not letters:
        return ""
    if unicodedata.category(letters[0])[0] == "M":
        return None
    other_characters = (each for each in core if each not in letters)
    if any(
        each.isdigit() or not (each.isascii() or each in _INNER_CHARACTERS)
        for each in other_characters
    ):
        return None
    return letters


def _find_scripts(letters: str) -> set[str]:
    return {_find_script(letter) for letter in letters} - {"COMBINING"}


def _find_script(letter: str) -> str:
    if letter.isascii():
        return "ASCII"
    return re.split("[ -]", unicodedata.name(letter, ""), maxsplit=1)[0]


def _has_fitting_case(letters: str, *, is_latin: bool) -> bool:
    """Return whether a word is capitalised like a name, such as "Anna" or "McDonald"."""
    if is_latin and letters[0].islower() and not letters[0].isascii():
        return False
    for before, letter in pairwise(letters):
        if before.islower() and letter.isupper() and not (before + letter).isascii():
            return False
    has_two_capitals = letters[:2].isupper() and len(letters) > 2  # noqa: PLR2004 - two capitals
    return letters.isupper() or not has_two_capitals or letters[1].isascii()


def _is_mostly_western(
    decodings: Mapping[str, _Decoding], possible: Mapping[str, _Decoding]
) -> bool:
    """Return whether the file is probably in Windows-1252, even if a few cells look wrong."""
    western = decodings.get(WINDOWS_1252)
    if western is None or WINDOWS_1252 not in possible:
        return False
    is_western_cell = [is_western(cell) for cell in western.cells]
    for name, rival in possible.items():
        if name in _EAST_ASIAN or name == WINDOWS_1252:
            continue
        cells = zip(western.cells, rival.cells, is_western_cell, strict=True)
        verdicts = [is_fitting for text, rival_text, is_fitting in cells if text != rival_text]
        if sum(verdicts) < _MIN_WESTERN_SHARE * len(verdicts):
            return False
    return any(is_western_cell)


def _rank_encodings(cells: Iterable[bytes]) -> dict[str, float]:
    # Import chardet inside the function, because chardet loads large models that few files need.
    import chardet

    sample = b"\n".join(cells)[:_MAX_SAMPLE_BYTES]
    include = {*_CANDIDATES, *_NAMES_OF_CHARDET} - {"euc_jp", "cp950"}
    options = {"ignore_threshold": True, "compat_names": False, "include_encodings": include}
    confidences: dict[str, float] = {}
    for result in chardet.detect_all(sample, **options):  # type: ignore[arg-type]
        name = (result["encoding"] or "").lower()
        encoding = _NAMES_OF_CHARDET.get(name, name)
        confidences[encoding] = max(confidences.get(encoding, 0.0), result["confidence"])
    return confidences


def _choose_best(
    possible: Mapping[str, _Decoding], confidences: Mapping[str, float], ambiguous_cells: int
) -> str | None:
    """Return the encoding that is clearly the most probable, or ``None`` in case of doubt."""
    words = max((len(decoding.words) for decoding in possible.values()), default=0)
    alphabetic = sorted(
        (name for name in possible if name not in _EAST_ASIAN),
        key=lambda name: -confidences.get(name, 0.0),
    )
    shares = sorted(
        (
            (_measure_name_share(decoding, name), name)
            for name, decoding in possible.items()
            if name in _EAST_ASIAN
        ),
        reverse=True,
    )
    if shares:
        share, name = shares[0]
        name_factor = _MIN_FACTOR if words < _MANY_CELLS else _MIN_EAST_ASIAN_FACTOR
        if share >= _MIN_NAME_SHARE and all(share >= name_factor * each for each, _ in shares[1:]):
            confidence = confidences.get(alphabetic[0], 0.0) if alphabetic else 0.0
            is_best = confidences.get(name, 0.0) >= _MIN_EAST_ASIAN_FACTOR * confidence
            return name if is_best or not alphabetic else None
        if share >= _RIVAL_NAME_SHARE:
            return None
    if not alphabetic:
        return None
    best = alphabetic[0]
    confidence = confidences.get(best, 0.0)
    # Accept Windows-1252 only if it is much more probable than other encodings, because the text
    # doesn't look Western European.
    is_doubtful = ambiguous_cells < _FEW_CELLS or best == WINDOWS_1252
    factor = _MIN_FACTOR_FEW_CELLS if is_doubtful else _MIN_FACTOR
    if ambiguous_cells >= _MANY_CELLS:
        factor = _MIN_FACTOR_MANY_CELLS
    rivals = [name for name in alphabetic if possible[name].cells != possible[best].cells]
    rival_confidence = max((confidences.get(name, 0.0) for name in rivals), default=0.0)
    if not confidence or confidence < factor * rival_confidence:
        return None
    if best in _CYRILLIC_AND_GREEK and words < _MIN_LOWER_CASE_WORDS:
        letters = "".join(possible[best].words)
        return best if any(each.isupper() for each in letters if not each.isascii()) else None
    return best


def _measure_name_share(decoding: _Decoding, encoding: str) -> float:
    characters = [each for word in decoding.words for each in word if not each.isascii()]
    frequent = _NAME_CHARACTERS[_EAST_ASIAN[encoding]]
    # Count kana as frequent in names, because kana prove that a text is Japanese.
    count = sum(each in frequent or "\u3040" <= each <= "\u30ff" for each in characters)
    return count / max(1, len(characters))


def _decode_rows(
    rows: Sequence[bytes], decodings: Mapping[str, _Decoding], confidences: Mapping[str, float]
) -> dict[str, list[str]]:
    decoded_rows: dict[str, list[str]] = {}
    for encoding in sorted(decodings, key=lambda each: -confidences.get(each, 0.0)):
        texts = [row.decode(encoding, "replace") for row in rows]
        # Show rows with many non-ASCII letters to the owner, because only non-ASCII letters depend
        # on the encoding.
        texts.sort(key=lambda row: sum(not letter.isascii() for letter in row), reverse=True)
        if texts[:ROWS_SHOWN] not in decoded_rows.values():
            decoded_rows[encoding] = texts[:ROWS_SHOWN]
    return decoded_rows
