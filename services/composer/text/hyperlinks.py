"""Finds links and mentions in texts.

The patterns for links match everything that any browser or platform might treat as a link.
"""

import re
import unicodedata
from collections.abc import Iterator

# No two repetitions in the patterns for links can match the same characters, so that a search takes
# linear time.
_URL_CHARACTER = r"[^\s<>\"'`()\[\]{}|\\^*\x00-\x1f\ue000-\uf8ff]"
URL = re.compile(
    rf"https?://(?:(?!&#?\w+;){_URL_CHARACTER}|\((?:(?!&#?\w+;){_URL_CHARACTER})*\))+", re.I
)
_TRAILING_PUNCTUATION = ".,;:!?'\"_~…。，、！？；：)]}）」』”’»"
_SCHEME_LINK = re.compile(
    r"(?<![\w.+-])(?:[a-z][a-z0-9+.-]{0,30}:/{1,3}|(?:data|javascript|mailto|tel):)[^\s<>\"]*", re.I
)
_LABEL = r"[^\W_](?:[\w-]*[^\W_])?"
# Matches host names without a scheme, including the host names in e-mail addresses.
_BARE_LINK = re.compile(
    rf"(?<![\w.-]){_LABEL}(?:\.{_LABEL})*\.(?:xn--[a-z0-9-]+|[^\W\d_]{{2,}})(?![\w@])"
    r"(?:[:/?#][^\s<>\"]*)?",
    re.I,
)
# Matches a Chinese full stop in a host name, which some programs treat as a dot.
_WIDE_STOP = re.compile(r"(?<=[a-z0-9])。(?=[a-z]{2,}(?:[\s/:?#]|$))", re.I)
_MENTION = re.compile(r"(?<![\w@!#$%&*])@\w+(?:@[\w.-]*\w)?")
_MARKS = re.compile(r"[\u200c\u200d\u00ad]")
_HOST = re.compile(r"https?://\w", re.I)


def find_urls(text: str) -> frozenset[str]:
    """Return the absolute http and https URLs in a text, without trailing punctuation."""
    urls = set()
    for match in URL.finditer(text):
        url = trim_punctuation(match[0])
        # If a URL contains an unclosed bracket, the closing bracket after the match belongs to the
        # URL.
        urls.add(f"{url})" if url.count("(") > url.count(")") else url)
    return frozenset(filter(_HOST.match, urls))


def find_mentions(text: str) -> frozenset[str]:
    """Return the mentioned handles in lower case, with `@`."""
    return frozenset(match[0] for match in _MENTION.finditer(fold_link(text)))


def find_links(text: str) -> frozenset[str]:
    return frozenset(link for _, _, link in _find_link_spans(fold_link(text)))


def remove_foreign_links(text: str, links: frozenset[str], mentions: frozenset[str]) -> str:
    cuts = [(start, end) for start, end, link in _find_link_spans(text) if link not in links]
    cuts += [
        match.span() for match in _MENTION.finditer(text) if fold_link(match[0]) not in mentions
    ]
    for start, end in sorted(cuts, reverse=True):
        text = text[:start] + text[end:]
    return text


def trim_punctuation(link: str) -> str:
    return link.rstrip(_TRAILING_PUNCTUATION)


def normalise_link(link: str) -> str:
    """Turn `HTTPS://WWW.Example.org/` into `example.org`."""
    link = trim_punctuation(fold_link(link))
    scheme, separator, rest = link.partition("://")
    if separator and scheme in {"http", "https"}:
        link = rest
    return link.removeprefix("www.").rstrip("/")


def fold_link(text: str) -> str:
    plain = text if text.isascii() else unicodedata.normalize("NFKC", _MARKS.sub("", text))
    return _WIDE_STOP.sub(".", plain.casefold())


def _find_link_spans(text: str) -> Iterator[tuple[int, int, str]]:
    candidates = [*_SCHEME_LINK.finditer(text), *_BARE_LINK.finditer(text)]
    end = 0
    for match in sorted(candidates, key=lambda match: (match.start(), -match.end())):
        link = trim_punctuation(match[0])
        if match.start() >= end:
            end = match.start() + len(link)
            if link:
                yield match.start(), end, normalise_link(link)
