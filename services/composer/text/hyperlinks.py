"""Links and mentions in text, found more readily than a browser or a platform would."""

import re
import unicodedata
from collections.abc import Iterator

# Linear on any text: no two repeats can share a character.
_ADDRESSED = r"[^\s<>\"'`()\[\]{}|\\^*\x00-\x1f\ue000-\uf8ff]"
ADDRESS = re.compile(
    rf"https?://(?:(?!&#?\w+;){_ADDRESSED}|\((?:(?!&#?\w+;){_ADDRESSED})*\))+", re.I
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
    """Absolute http(s) addresses as they are written, without the punctuation that follows."""
    found = (_without_stop(match[0]) for match in ADDRESS.finditer(text))
    return frozenset(address for address in found if _HOST.match(address))


def _without_stop(address: str) -> str:
    bare = trimmed_end(address)
    # A bracket that opens within the address closes there.
    return f"{bare})" if bare.count("(") > bare.count(")") else bare


def trimmed_end(link: str) -> str:
    return link.rstrip(_TRAILING)


def find_mentions(text: str) -> frozenset[str]:
    """Handles with their `@`, compared without regard to case or width."""
    return frozenset(match[0] for match in _MENTION.finditer(fold_link(text)))


def find_links(text: str) -> frozenset[str]:
    """All that might become a link: any scheme, and names of hosts without one."""
    return frozenset(key for _, _, key in link_spans(fold_link(text)))


def link_spans(text: str) -> Iterator[tuple[int, int, str]]:
    """Where, and the link itself in the form in which two of them are compared."""
    end = 0
    for match in _candidates(text):
        if match.start() < end:
            continue
        shown = match[0].rstrip(_TRAILING)
        end = match.start() + len(shown)
        if shown:
            yield match.start(), end, canonical_link(shown)


def mention_spans(text: str) -> Iterator[tuple[int, int, str]]:
    for match in _MENTION.finditer(text):
        yield match.start(), match.end(), match[0]


def canonical_link(link: str) -> str:
    """`HTTPS://WWW.Example.org/` and `example.org` lead to one place."""
    link = fold_link(link).rstrip(_TRAILING)
    scheme, separator, rest = link.partition("://")
    if separator and scheme in {"http", "https"}:
        link = rest
    return link.removeprefix("www.").rstrip("/")


def fold_link(text: str) -> str:
    """Full-width and other compatible forms as plain ones, in lower case."""
    plain = text if text.isascii() else unicodedata.normalize("NFKC", _MARKS.sub("", text))
    return _WIDE_STOP.sub(".", plain.casefold())


def _candidates(text: str) -> Iterator[re.Match[str]]:
    found = [*_SCHEME.finditer(text), *_BARE.finditer(text)]
    return iter(sorted(found, key=lambda match: (match.start(), -match.end())))
