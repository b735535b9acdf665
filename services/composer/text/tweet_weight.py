"""Measures the length of tweets as X (Twitter) does, with version 3 of its twitter-text rules."""

import re
import unicodedata
from pathlib import Path

from services.composer.text import hyperlinks

MAX_TWEET_WEIGHT = 280
URL_WEIGHT = 23
_MAX_URL_CHARACTERS = 2048
# The ranges of code points that X (Twitter) counts as one character. X (Twitter) counts all other
# code points as two characters.
_LIGHT_RANGES = ((0, 4351), (8192, 8205), (8208, 8223), (8242, 8247))
_PICTURE = "[\u203c-\u32ff\U0001f000-\U0001faff]"
_SHADED = f"{_PICTURE}[\ufe0f\U0001f3fb-\U0001f3ff]*"
# The emoji that can begin a sequence of joined emoji. Devices show a sequence of joined emoji as a
# single emoji, for example as a family of several people.
_JOINING = (
    "[\u26d3\u26f9\u2764\U0001f344\U0001f34b\U0001f3c3-\U0001f3cc\U0001f3f3\U0001f3f4"
    "\U0001f408-\U0001f49f\U0001f575\U0001f62e\U0001f635\U0001f636\U0001f642"
    "\U0001f645-\U0001f64e\U0001f6a3\U0001f6b4-\U0001f6b6\U0001f900-\U0001f9ff]"
)
_EMOJI = re.compile(
    "[#*0-9]\ufe0f?\u20e3"
    "|[\U0001f1e6-\U0001f1ff]{2}"
    "|\U0001f3f4[\U000e0020-\U000e007e]{1,8}\U000e007f"
    f"|{_JOINING}[\ufe0f\U0001f3fb-\U0001f3ff]*(?:\u200d{_SHADED}){{1,3}}"
    f"|{_SHADED}"
    "|[\u00a9\u00ae]\ufe0f?"
)
_URL = re.compile(
    r"(https?://)?((?:[a-z0-9](?:[a-z0-9_-]{0,61}[a-z0-9])?\.){1,8}[a-z]{2,24})(:[0-9]{1,5})?"
    r"(/[a-z0-9!*';:=+,.$/%#@\[\]_~|&-]*)?(\?[a-z0-9!*';:=+,.$/%#\[\]@_~|&?-]*)?",
    re.I,
)
_JOINED_BEFORE = re.compile(r"[\w@#$./-]$", re.ASCII)
# The top-level domains of URLs that X (Twitter) certainly recognises. X counts a recognised URL as
# ``URL_WEIGHT`` characters, and any other URL as plain text. If ``_KNOWN_DOMAINS`` doesn't contain
# the top-level domain of a URL, Pressroom counts the URL as ``URL_WEIGHT`` characters or as plain
# text, whichever results in the longer tweet.
_KNOWN_DOMAINS = frozenset(Path(__file__).with_name("known_domains.txt").read_text("ascii").split())


def measure_tweet_weight(text: str) -> int:
    """The result may be too high if the top-level domain of a URL isn't in ``_KNOWN_DOMAINS``."""
    text = unicodedata.normalize("NFC", text.replace("\r\n", "\n"))
    weight = 0
    end = 0
    for match in _URL.finditer(text):
        weight += _measure_words(text[end : match.start()])
        end = match.end()
        url = hyperlinks.trim_punctuation(match[0])
        before = text[max(0, match.start() - 1) : match.start()]
        is_known = match[2].rpartition(".")[2].casefold() in _KNOWN_DOMAINS
        is_sure = is_known and not _JOINED_BEFORE.search(before)
        weight += len(match[0]) - len(url)
        if is_sure and len(url) <= _MAX_URL_CHARACTERS:
            weight += URL_WEIGHT
        else:
            weight += max(URL_WEIGHT, _measure_words(url))
    return weight + _measure_words(text[end:])


def _measure_words(text: str) -> int:
    words, emoji = _EMOJI.subn("", text)
    light = sum(
        any(low <= ord(character) <= high for low, high in _LIGHT_RANGES) for character in words
    )
    return 2 * (emoji + len(words)) - light
