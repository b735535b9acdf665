"""Detects the encoding of an imported file from its non-ASCII bytes.

The module ``western`` recognises Western European names in Windows-1252 by rules, because
statistics are unreliable for a single name. For other files, the library chardet ranks the
encodings in which the words are plausible. If no encoding is clearly the best, the owner chooses
the encoding.
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
from services.subscriptions.imports.western_text import is_western

WINDOWS_1252 = "cp1252"
# The encodings that an owner can choose, in the order of the list on the upload page.
ENCODINGS: Mapping[str, str] = {
    "utf-8": "Unicode (UTF-8)",
    "utf-16": "Unicode (UTF-16)",
    "utf-16-be": "Unicode (UTF-16, big-endian)",
    WINDOWS_1252: "Western Europe (Windows-1252)",
    "mac-roman": "Western Europe (Mac Roman)",
    "cp1250": "Central Europe (Windows-1250)",
    "iso8859-2": "Central Europe (ISO 8859-2)",
    "cp1251": "Cyrillic (Windows-1251)",
    "koi8-r": "Cyrillic (KOI8-R)",
    "cp1253": "Greek (Windows-1253)",
    "cp1254": "Turkish (Windows-1254)",
    "cp1257": "Baltic (Windows-1257)",
    "cp1255": "Hebrew (Windows-1255)",
    "cp1256": "Arabic (Windows-1256)",
    "cp932": "Japanese (Shift_JIS)",
    "euc_jp": "Japanese (EUC-JP)",
    "gb18030": "Simplified Chinese (GB18030)",
    "cp950": "Traditional Chinese (Big5)",
    "cp949": "Korean (EUC-KR)",
}
# Other names of these encodings and of their subsets, in lower case and without punctuation.
_ALIASES = {
    "utf16le": "utf-16",
    **dict.fromkeys(("latin1", "iso88591", "iso885915", "ansi"), WINDOWS_1252),
    **dict.fromkeys(("macintosh", "mac"), "mac-roman"),
    **dict.fromkeys(("iso88592", "latin2"), "iso8859-2"),
    **dict.fromkeys(("shiftjis", "sjis", "mskanji"), "cp932"),
    **dict.fromkeys(("gbk", "gb2312", "cp936"), "gb18030"),
    "big5": "cp950",
    **dict.fromkeys(("euckr", "uhc", "ksc5601"), "cp949"),
}
_NOT_OF_A_NAME = re.compile(r"[^a-z0-9]+")

_MULTI_BYTE = {
    "cp932": "japanese",
    "euc_jp": "japanese",
    "gb18030": "simplified_chinese",
    "cp950": "traditional_chinese",
    "cp949": "korean",
}
# All encodings except the Unicode encodings, which ``containers`` detects.
_CANDIDATES = tuple(each for each in ENCODINGS if not each.startswith("utf"))
# Maps chardet's name of an encoding to our name of the encoding, if the two names differ.
_OF_CHARDET = {
    "shift_jis_2004": "cp932",
    "euc_jis_2004": "euc_jp",
    "big5hkscs": "cp950",
}
_NAME_CHARACTERS = {
    language: frozenset(text)
    for language, text in tomllib.loads(
        Path(__file__).with_suffix(".toml").read_text("utf-8")
    ).items()
}


def read_encoding(name: str) -> str | None:
    """Return the encoding with this name, in any spelling, or ``None`` if the name is unknown."""
    plain = _NOT_OF_A_NAME.sub("", name.lower())
    own = {_NOT_OF_A_NAME.sub("", encoding): encoding for encoding in ENCODINGS}
    return own.get(plain.replace("windows", "cp")) or _ALIASES.get(plain)


class EncodingUnclear(DomainError):
    """The error ``import.encoding_needed``, because no encoding of a file is clearly the best.

    ``readings`` maps each possible encoding to some rows of the file, decoded with this encoding.
    """

    def __init__(self, readings: Mapping[str, Sequence[str]]) -> None:
        names = ", ".join(f"encoding={name}" for name in readings)
        error = IMPORT_ENCODING_NEEDED(encodings=names)
        super().__init__(error.kind, error.code, error.message)
        self.readings = readings


# The bytes that end a cell. All of these bytes are below 0x40, because a higher byte may be the
# second byte of an East Asian character. A space doesn't end a cell, so that paired quotation marks
# stay in the same cell.
_CELL_ENDS = bytes((*range(0x20), *b',;"'))
_CELL_END = re.compile(b"[%b]" % re.escape(_CELL_ENDS))
_AS_LINE_ENDS = bytes.maketrans(_CELL_ENDS, b"\n" * len(_CELL_ENDS))
_MAX_CELL_BYTES = 200
# The maximum number of cells to collect per non-ASCII byte value. The limit per value saves memory,
# and still leaves room for letters that first appear late in a large file.
_MAX_CELLS_PER_BYTE = 40
_MAX_ROWS = 200
_MAX_ROW_BYTES = 400
ROWS_SHOWN = 3


class EncodingEvidence:
    """Collects cells with non-ASCII bytes from a file, up to a limit per byte value."""

    def __init__(self) -> None:
        self._cells: dict[bytes, None] = {}
        self._rows: list[bytes] = []
        self._counts = dict.fromkeys(range(0x80, 0x100), 0)
        self._begun = b""
        self._pattern = self._pattern_for(self._counts)

    @property
    def has_cells(self) -> bool:
        return bool(self._cells)

    def note(self, data: bytes) -> None:
        """Collect cells from the next part of the file, and skip the part if it is all ASCII."""
        if data.isascii() and self._begun.isascii():
            self._begun = (self._begun + data)[-_MAX_CELL_BYTES:]
            return
        text = self._begun + data
        whole, end, self._begun = text.rpartition(b"\n")
        if not end or len(self._begun) > _MAX_ROW_BYTES:
            whole, self._begun = text, b""
        self._note(whole)

    def end(self) -> None:
        """Collect cells from the last row, which may lack a line end."""
        self._note(self._begun)
        self._begun = b""

    def _note(self, data: bytes) -> None:
        at = 0
        while self._pattern is not None and (found := self._pattern.search(data, at)):
            cell, at = _cell_around(data, found.start())
            if cell in self._cells:
                continue
            self._cells[cell] = None
            if len(self._rows) < _MAX_ROWS:
                begin = data.rfind(b"\n", 0, found.start()) + 1
                line, _, _ = data[begin : begin + _MAX_ROW_BYTES].partition(b"\n")
                self._rows.append(line.strip())
            for byte in self._counts.keys() & set(cell):
                self._counts[byte] += 1
                if self._counts[byte] == _MAX_CELLS_PER_BYTE:
                    self._pattern = self._pattern_for(self._counts)

    def _pattern_for(self, counts: Mapping[int, int]) -> re.Pattern[bytes] | None:
        """Return a pattern for non-ASCII byte values that still lack cells to detect the encoding.

        Return ``None`` if enough cells have been collected for every byte value.
        """
        open_bytes = [byte for byte, count in counts.items() if count < _MAX_CELLS_PER_BYTE]
        if not open_bytes:
            return None
        return re.compile(b"[%b]" % re.escape(bytes(open_bytes)))

    def decide(self) -> str:
        """Return the encoding of the file.

        Raises ``EncodingUnclear`` if no encoding is clearly the best.
        """
        cells = list(self._cells)
        readings = _readings(cells)
        if WINDOWS_1252 in readings and all(map(is_western, readings[WINDOWS_1252].cells)):
            return WINDOWS_1252
        possible = _possible(readings)
        if _is_mostly_western(readings, possible):
            return WINDOWS_1252
        # Cells with the same text in all possible encodings don't help to choose an encoding.
        texts = zip(*(reading.cells for reading in possible.values()), strict=True)
        ambiguous = [cell for cell, read in zip(cells, texts, strict=False) if len({*read}) > 1]
        if ambiguous:
            decoded = _readings(ambiguous)
            possible = _possible({name: decoded[name] for name in possible})
        ranks = _ranks(ambiguous or cells)
        best = _best(possible, ranks, len(ambiguous))
        if best is None:
            raise EncodingUnclear(self._shown(possible or readings, ranks))
        return best

    def _shown(
        self, readings: "Mapping[str, _Reading]", ranks: Mapping[str, float]
    ) -> dict[str, list[str]]:
        """Return some rows decoded with each possible encoding, the most probable encoding first.

        If several encodings give the same text, only the most probable encoding is listed.
        """
        shown: dict[str, list[str]] = {}
        for encoding in sorted(readings, key=lambda each: -ranks.get(each, 0.0)):
            rows = [row.decode(encoding, "replace") for row in self._rows]
            # Prefer rows with many non-ASCII letters, because the encodings differ most there.
            rows.sort(key=lambda row: sum(not letter.isascii() for letter in row), reverse=True)
            if rows[:ROWS_SHOWN] not in shown.values():
                shown[encoding] = rows[:ROWS_SHOWN]
        return shown


def _cell_around(data: bytes, at: int) -> tuple[bytes, int]:
    """Return the cell that contains the byte at this position, and the position after the cell."""
    before = data[max(0, at - _MAX_CELL_BYTES) : at].translate(_AS_LINE_ENDS)
    end = _CELL_END.search(data, at, at + _MAX_CELL_BYTES)
    after = end.start() if end else min(len(data), at + _MAX_CELL_BYTES)
    begin = at - len(before) + before.rfind(b"\n") + 1
    return data[begin:after].strip(), after


class _Reading(NamedTuple):
    """The cells decoded with one encoding, and the words in them that aren't plain ASCII.

    ``plausible``: the number of these words that look like real words.
    """

    cells: Sequence[str]
    words: Sequence[str]
    plausible: int

    @property
    def share(self) -> float:
        return self.plausible / len(self.words) if self.words else 0.0


_WORD = re.compile(r"[^\s.,;:()&+/|\"<>@_-]+")
# If the cells are decoded with a wrong encoding, the share of plausible words is usually below this
# limit.
_MIN_PLAUSIBLE_SHARE = 0.9
_SHARE_MARGIN = 0.02
_MIN_WESTERN_SHARE = 0.97


def _readings(cells: Sequence[bytes]) -> dict[str, _Reading]:
    """Return the decoded cells for each encoding that can decode all of them."""
    found: dict[str, _Reading] = {}
    for encoding in _CANDIDATES:
        try:
            texts = [cell.decode(encoding) for cell in cells]
        except UnicodeDecodeError:
            continue
        words = [word for text in texts for word in _WORD.findall(text) if not word.isascii()]
        is_asian = encoding in _MULTI_BYTE
        plausible = sum(
            _is_plausible(word, is_asian=is_asian)
            or (encoding == WINDOWS_1252 and is_western(word))
            for word in words
        )
        found[encoding] = _Reading(texts, words, plausible)
    return found


def _possible(readings: Mapping[str, _Reading]) -> dict[str, _Reading]:
    """Return the encodings in which nearly all words are plausible, with the decoded cells."""
    best = max((reading.share for reading in readings.values()), default=0.0)
    least = max(_MIN_PLAUSIBLE_SHARE, best - _SHARE_MARGIN)
    return {name: reading for name, reading in readings.items() if reading.share >= least}


_SCRIPTS_OF_EAST_ASIA = {"CJK", "HIRAGANA", "KATAKANA", "HANGUL", "IDEOGRAPHIC"}
_BESIDE_A_WORD = "’‘'´`“”„«»…!?¡¿"
_INSIDE_A_WORD = frozenset("’‘·´ʼ・ー々〇")
_NO_CHARACTERS = frozenset({"Cc", "Cn", "Co", "Cs"})


@lru_cache(16_384)
def _is_plausible(word: str, *, is_asian: bool) -> bool:
    """Return whether a word looks real: in a single script, and without capitals inside it."""
    if any(not each.isascii() and unicodedata.category(each) in _NO_CHARACTERS for each in word):
        return False
    core = word.strip(_BESIDE_A_WORD)
    letters = "".join(each for each in core if unicodedata.category(each)[0] in "LM")
    if not letters:
        return True
    if unicodedata.category(letters[0])[0] == "M":
        return False
    others = (each for each in core if each not in letters)
    if any(each.isdigit() or not (each.isascii() or each in _INSIDE_A_WORD) for each in others):
        return False
    scripts = {_script_of(letter) for letter in letters} - {"COMBINING"}
    if is_asian:
        return scripts <= _SCRIPTS_OF_EAST_ASIA
    is_latin = scripts <= {"ASCII", "LATIN"}
    return (is_latin or len(scripts) == 1) and _has_fitting_case(letters, is_latin=is_latin)


def _script_of(letter: str) -> str:
    if letter.isascii():
        return "ASCII"
    return re.split("[ -]", unicodedata.name(letter, ""), maxsplit=1)[0]


def _has_fitting_case(letters: str, *, is_latin: bool) -> bool:
    if is_latin and letters[0].islower() and not letters[0].isascii():
        return False
    for before, letter in pairwise(letters):
        if before.islower() and letter.isupper() and not (before + letter).isascii():
            return False
    begins_twice = letters[:2].isupper() and len(letters) > 2  # noqa: PLR2004 - two capitals
    return letters.isupper() or not begins_twice or letters[1].isascii()


def _is_mostly_western(readings: Mapping[str, _Reading], possible: Mapping[str, _Reading]) -> bool:
    """Return whether the file is probably in Windows-1252, despite a few unusual cells.

    A cell is ambiguous if its text differs between the two encodings. Windows-1252 is accepted only
    if nearly all ambiguous cells look like Western European names.
    """
    western = readings.get(WINDOWS_1252)
    if western is None or WINDOWS_1252 not in possible:
        return False
    fits = [is_western(cell) for cell in western.cells]
    for name, rival in possible.items():
        if name in _MULTI_BYTE or name == WINDOWS_1252:
            continue
        pairs = zip(western.cells, rival.cells, fits, strict=True)
        verdicts = [is_fitting for own, other, is_fitting in pairs if own != other]
        if sum(verdicts) < _MIN_WESTERN_SHARE * len(verdicts):
            return False
    return any(fits)


# The maximum number of bytes that chardet analyses.
_MAX_SAMPLE_BYTES = 64 * 1024
# chardet's confidence in the best encoding must exceed its confidence in the second encoding by a
# factor. With fewer ambiguous cells than the first number, the factor is largest. It is smallest if
# there are at least as many ambiguous cells as the second number.
_FEW, _SOME = 3, 20
# The minimum share of decoded characters that must be frequent in names. With the first share, an
# East Asian encoding can be chosen. With the second share, it only remains possible.
_MIN_NAME_SHARE = 0.34
_RIVAL_NAME_SHARE = 0.25
_MULTI_BYTE_MARGIN = 1.5
# Cyrillic and Greek encodings. If Hebrew text is decoded with one of these encodings, the result
# may look like lower-case letters.
_WITH_CAPITALS = frozenset({"cp1251", "koi8-r", "cp1253"})
_MIN_WORDS_OF_SMALL_LETTERS = 10


def _ranks(cells: Iterable[bytes]) -> dict[str, float]:
    """Return chardet's confidence in each encoding of these cells."""
    # chardet is imported only here, because it loads large models that few files need.
    import chardet

    sample = b"\n".join(cells)[:_MAX_SAMPLE_BYTES]
    include = {*_CANDIDATES, *_OF_CHARDET} - {"euc_jp", "cp950"}
    options = {"ignore_threshold": True, "compat_names": False, "include_encodings": include}
    ranks: dict[str, float] = {}
    for found in chardet.detect_all(sample, **options):  # type: ignore[arg-type]
        name = (found["encoding"] or "").lower()
        encoding = _OF_CHARDET.get(name, name)
        ranks[encoding] = max(ranks.get(encoding, 0.0), found["confidence"])
    return ranks


def _best(
    possible: Mapping[str, _Reading], ranks: Mapping[str, float], ambiguous_cells: int
) -> str | None:
    """Return the encoding that is clearly the best, or ``None`` if no encoding is.

    ``ambiguous_cells``: the number of cells whose text differs between the possible encodings.
    """
    words = max((len(reading.words) for reading in possible.values()), default=0)
    others = sorted(
        (name for name in possible if name not in _MULTI_BYTE),
        key=lambda name: -ranks.get(name, 0.0),
    )
    shares = sorted(
        (
            (_name_share(reading, name), name)
            for name, reading in possible.items()
            if name in _MULTI_BYTE
        ),
        reverse=True,
    )
    if shares:
        share, name = shares[0]
        name_margin = 2.0 if words < _SOME else _MULTI_BYTE_MARGIN
        if share >= _MIN_NAME_SHARE and all(share >= name_margin * each for each, _ in shares[1:]):
            rank = ranks.get(others[0], 0.0) if others else 0.0
            is_best = not others or ranks.get(name, 0.0) >= _MULTI_BYTE_MARGIN * rank
            return name if is_best else None
        if share >= _RIVAL_NAME_SHARE:
            return None
    if not others:
        return None
    best, rank = others[0], ranks.get(others[0], 0.0)
    # The rules in ``western`` have already rejected Windows-1252, so the best encoding needs a
    # larger lead if it is Windows-1252.
    is_doubtful = ambiguous_cells < _FEW or best == WINDOWS_1252
    margin = 1.2 if ambiguous_cells >= _SOME else 3.0 if is_doubtful else 2.0
    rivals = (ranks.get(n, 0.0) for n in others if possible[n].cells != possible[best].cells)
    if not rank or rank < margin * max(rivals, default=0.0):
        return None
    if best in _WITH_CAPITALS and words < _MIN_WORDS_OF_SMALL_LETTERS:
        letters = "".join(possible[best].words)
        return best if any(each.isupper() for each in letters if not each.isascii()) else None
    return best


def _name_share(reading: _Reading, encoding: str) -> float:
    """Return which share of the characters is frequent in names in the encoding's language."""
    letters = [each for word in reading.words for each in word if not each.isascii()]
    known = _NAME_CHARACTERS[_MULTI_BYTE[encoding]]
    # Kana also count as frequent characters, because only Japanese text contains kana.
    common = sum(letter in known or "\u3040" <= letter <= "\u30ff" for letter in letters)
    return common / max(1, len(letters))
