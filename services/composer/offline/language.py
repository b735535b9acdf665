"""Detects a post's language: by its script where that decides, else by statistics of letters."""

import re
from threading import Lock

from services.composer.post import PlainPost

# As much as a post of 3,000 words has; more text decides nothing more.
_MAX_SAMPLE_CHARACTERS = 20_000
# Statistics of fewer letters are guesses.
_MIN_LETTERS = 24
_SCRIPTS = (
    ("ja", re.compile("[\u3040-\u30ff]"), 0.05),
    ("ko", re.compile("[\uac00-\ud7af]"), 0.3),
    ("zh", re.compile("[\u3400-\u4dbf\u4e00-\u9fff]"), 0.2),
    ("th", re.compile("[\u0e00-\u0e7f]"), 0.3),
    ("el", re.compile("[\u0370-\u03ff]"), 0.3),
    ("he", re.compile("[\u0590-\u05ff]"), 0.3),
    ("hy", re.compile("[\u0530-\u058f]"), 0.3),
    ("ka", re.compile("[\u10a0-\u10ff]"), 0.3),
)
_CYRILLIC = re.compile("[\u0400-\u04ff]")
_LETTER = re.compile(r"[^\W\d_]")
_MAX_SCRIPT_SAMPLE_CHARACTERS = 4_000
_ONE_AT_A_TIME = Lock()


def language_of(plain: PlainPost) -> str:
    """An ISO 639-1 code; `en` where nothing decides."""
    pieces: list[str] = []
    room = _MAX_SAMPLE_CHARACTERS
    for part in (*plain.paragraphs, *plain.headings, plain.title):
        pieces.append(part[:room])
        room -= len(part)
        if room <= 0:
            break
    text = "\n".join(pieces)
    looked_at = text[:_MAX_SCRIPT_SAMPLE_CHARACTERS]
    letters = len(_LETTER.findall(looked_at))
    for language, script, share in _SCRIPTS:
        if letters and len(script.findall(looked_at)) / letters >= share:
            return language
    if letters < _MIN_LETTERS:
        return "ru" if _CYRILLIC.search(looked_at) else "en"
    # Its model takes 100 MB, for a worker that writes. Two threads would load it twice.
    with _ONE_AT_A_TIME:
        from py3langid import classify

        return str(classify(text)[0])
