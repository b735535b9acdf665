"""The length of a tweet as the platform weighs it (the configuration v3 of twitter-text)."""

import re
import unicodedata

from services.composer.text import hyperlinks

MAX_TWEET_WEIGHT = 280
URL_WEIGHT = 23

# Code points that weigh 1; all others weigh 2.
_LIGHT = ((0, 4351), (8192, 8205), (8208, 8223), (8242, 8247))
_PICTURE = "[\u203c-\u32ff\U0001f000-\U0001faff]"
_SHADED = f"{_PICTURE}[\ufe0f\U0001f3fb-\U0001f3ff]*"
# First parts of joined emoji: people, flags, animals, hearts, some faces, a chain, fruit.
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
_MAX_URL_CHARACTERS = 2048
# Domains that the platform certainly knows. One that isn't here may count in full instead, so a
# URL under it weighs as much as the heavier of the two.
_KNOWN = frozenset(
    "com org net edu gov mil int info biz name pro aero coop museum jobs mobi travel cat tel asia "
    "app blog cloud club dev news online page shop site store tech wiki work world xyz ".split()
    + "ac ad ae af ag ai al am ao ar as at au aw az ba bb bd be bf bg bh bi bj bm bn bo br bs bt "
    "bw by bz ca cc cd cf cg ch ci ck cl cm cn co cr cu cv cx cy cz de dj dk dm do dz ec ee eg es "
    "et eu fi fj fk fm fo fr ga gd ge gf gg gh gi gl gm gn gp gq gr gs gt gu gw gy hk hm hn hr ht "
    "hu id ie il im in io iq ir is it je jm jo jp ke kg kh ki km kn kp kr kw ky kz la lb lc li lk "
    "lr ls lt lu lv ly ma mc md me mg mh mk ml mm mn mo mp mq mr ms mt mu mv mw mx my mz na nc ne "
    "nf ng ni nl no np nr nu nz om pa pe pf pg ph pk pl pm pn pr ps pt pw py qa re ro rs ru rw sa "
    "sb sc sd se sg sh si sk sl sm sn so sr ss st su sv sx sy sz tc td tf tg th tj tk tl tm tn to "
    "tr tt tv tw tz ua ug uk us uy uz va vc ve vg vi vn vu wf ws ye yt za zm zw".split()
)


def weighted_length(text: str) -> int:
    """Never less than the platform's own count; more only for URLs whose domain it may not know."""
    text = unicodedata.normalize("NFC", text.replace("\r\n", "\n"))
    weight, end = 0, 0
    for match in _URL.finditer(text):
        weight += _weight_of_words(text[end : match.start()])
        weight += _weight_of_url(text, match)
        end = match.end()
    return weight + _weight_of_words(text[end:])


def _weight_of_words(text: str) -> int:
    weight = 2 * len(_EMOJI.findall(text))
    return weight + sum(map(_weight_of_character, _EMOJI.sub("", text)))


def _weight_of_character(character: str) -> int:
    return 1 if any(low <= ord(character) <= high for low, high in _LIGHT) else 2


def _weight_of_url(text: str, match: re.Match[str]) -> int:
    written = match[0]
    shown = hyperlinks.trimmed_end(written)
    ending = len(written) - len(shown)
    full = _weight_of_words(shown)
    if _is_known(text, match) and len(shown) <= _MAX_URL_CHARACTERS:
        return URL_WEIGHT + ending
    return max(URL_WEIGHT, full) + ending


def _is_known(text: str, match: re.Match[str]) -> bool:
    before = text[max(0, match.start() - 1) : match.start()]
    return match[2].rpartition(".")[2].casefold() in _KNOWN and not _JOINED_BEFORE.search(before)
