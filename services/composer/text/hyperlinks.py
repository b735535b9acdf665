"""Links and mentions in text, found more readily than a browser or a platform finds them."""

import re
import unicodedata
from collections.abc import Iterator

# Linear on any text: no two repeats can share a character.
_URL_CHARACTER = r"[^\s<>\"'`()\[\]{}|\\^*\x00-\x1f\ue000-\uf8ff]"
URL = re.compile(
    rf"https?://(?:(?!&#?\w+;){_URL_CHARACTER}|\((?:(?!&#?\w+;){_URL_CHARACTER})*\))+", re.I
)
_TRAILING = ".,;:!?'\"_~…。，、！？；：)]}）」』”’»"
_SCHEME = re.compile(
    r"(?<![\w.+-])(?:[a-z][a-z0-9+.-]{0,30}:/{1,3}|(?:data|javascript|mailto|tel):)[^\s<>\"]*", re.I
)
_LABEL = r"[^\W_](?:[\w-]*[^\W_])?"
# A host's name without a scheme; also the one in a mail address.
_BARE = re.compile(
    rf"(?<![\w.-]){_LABEL}(?:\.{_LABEL})*\.(?:xn--[a-z0-9-]+|[^\W\d_]{{2,}})(?![\w@])"
    r"(?:[:/?#][^\s<>\"]*)?",
    re.I,
)
# A full stop of Chinese and Japanese between Latin labels, with no word of theirs beside it.
_WIDE_STOP = re.compile(r"(?<=[a-z0-9])。(?=[a-z]{2,}(?:[\s/:?#]|$))", re.I)
_MENTION = re.compile(r"(?<![\w@!#$%&*])@\w+(?:@[\w.-]*\w)?")
_MARKS = re.compile(r"[\u200c\u200d\u00ad]")
_HOST = re.compile(r"https?://\w", re.I)


def find_urls(text: str) -> frozenset[str]:
    """Absolute http(s) URLs as they are written, without the punctuation that follows."""
    found = set()
    for match in URL.finditer(text):
        url = trim_punctuation(match[0])
        # A bracket that opens within the URL closes there.
        found.add(f"{url})" if url.count("(") > url.count(")") else url)
    return frozenset(filter(_HOST.match, found))


def find_mentions(text: str) -> frozenset[str]:
    """Handles with their `@`, in the form in which they are compared."""
    return frozenset(match[0] for match in _MENTION.finditer(fold_link(text)))


def find_links(text: str) -> frozenset[str]:
    """All that might become a link, by a scheme or a host's name, as links are compared."""
    return frozenset(link for _, _, link in _link_spans(fold_link(text)))


def remove_foreign_links(text: str, links: frozenset[str], mentions: frozenset[str]) -> str:
    """Leave out each link and each mention that isn't among these."""
    cuts = [(start, end) for start, end, link in _link_spans(text) if link not in links]
    cuts += [m.span() for m in _MENTION.finditer(text) if fold_link(m[0]) not in mentions]
    for start, end in sorted(cuts, reverse=True):
        text = text[:start] + text[end:]
    return text


def trim_punctuation(link: str) -> str:
    return link.rstrip(_TRAILING)


def normalise_link(link: str) -> str:
    """`HTTPS://WWW.Example.org/` and `example.org` lead to one place."""
    link = trim_punctuation(fold_link(link))
    scheme, separator, rest = link.partition("://")
    if separator and scheme in {"http", "https"}:
        link = rest
    return link.removeprefix("www.").rstrip("/")


def fold_link(text: str) -> str:
    """Full-width and other compatible forms as plain ones, in lower case."""
    plain = text if text.isascii() else unicodedata.normalize("NFKC", _MARKS.sub("", text))
    return _WIDE_STOP.sub(".", plain.casefold())


def _link_spans(text: str) -> Iterator[tuple[int, int, str]]:
    """Where each link begins and ends, and the link in the form in which links are compared."""
    candidates = [*_SCHEME.finditer(text), *_BARE.finditer(text)]
    end = 0
    for match in sorted(candidates, key=lambda match: (match.start(), -match.end())):
        shown = trim_punctuation(match[0])
        if match.start() >= end:
            end = match.start() + len(shown)
            if shown:
                yield match.start(), end, normalise_link(shown)
