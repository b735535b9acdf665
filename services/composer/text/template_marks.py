"""Removes template marks, such as shortcodes and merge tags, from posts.

Publishing and mailing programs replace these marks before readers see the post. Shortcodes, such as
`[gallery]`, insert elements. Merge tags, such as `{{ first_name }}`, insert fields of the reader.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import NamedTuple

_NAME = r"[^\W\d][\w-]{0,60}"
_QUOTED = r"""(?:"[^"]{0,2000}+"|'[^']{0,2000}+'|[”“„″][^”“„″]{0,2000}+[”“„″])"""
_FIELD_NAME = r"[^\W\d][\w .:=-]{0,60}"
# The fallback in a merge tag, which is the text for readers whose field is empty.
_FALLBACK = (
    r"(?: ?(?:\|[^\[\]{}\n]{0,100}|, ?(?:fallback|default)=[^\[\]{}\n]{0,100}"
    r"|, ?\"[^\"\n]{0,100}\"|%%[^\[\]{}\n]{0,100}))?"
)

# Shortcodes that are recognised by their name, even without an end tag or an attribute.
_SHORTCODES = frozenset(
    "gallery playlist nextpage contact-form contact-form-7 youtube vimeo soundcloud spotify "
    "instagram wpvideo googlemaps".split()
)
_COMMANDS = frozenset({"loadposition", "loadmodule", "loadmoduleid", "loadarticle", "include"})
# BBCode tags that can be inside a word or a sentence, such as `[b]`.
_INLINE = frozenset("b i u s em strong sup sub color colour size font highlight url".split())
_WINDOWS_VARIABLES = frozenset(
    "path temp tmp appdata localappdata userprofile homepath homedrive programfiles programdata "
    "windir systemroot systemdrive comspec computername public allusersprofile username".split()
)
# Objects whose fields occur in merge tags, such as `subscriber:firstname` and `contact.city`.
_OWNERS = frozenset(
    "account campaign company contact contactattribute contactfield currentuser custom customer "
    "data date lead link list mailpoet member newsletter node person profile recipient site "
    "subscriber subtag user var".split()
)
_SEPARATORS = re.compile(r"[\s_-]+")
_FIELD = re.compile(r"[^\W\d]\w*+(?:[ .:=-]\w++)*+")
_MIN_SHOUTED_LETTERS = 4
_PERSON = "person"
_KINDS = (_PERSON, "other")


class _Surroundings:
    """The names of all end tags and link references in a text.

    These names help to decide whether brackets are a template mark or ordinary text.
    """

    def __init__(self, text: str) -> None:
        self._text = text

    @cached_property
    def ended(self) -> frozenset[str]:
        """The names of all end tags in square brackets. For example, `[/b]` has the name `b`."""
        return frozenset(re.findall(rf"\[/({_NAME})\s?\]", self._text))

    @cached_property
    def ended_in_braces(self) -> frozenset[str]:
        return frozenset(re.findall(rf"\{{/({_NAME})\}}", self._text))

    @cached_property
    def references(self) -> frozenset[str]:
        """The names of Markdown link references, such as `docs` in `[docs]: https://docs.example`."""
        found = re.findall(r"^ {0,3}\[([^\]\n]{1,100})\]:", self._text, re.MULTILINE)
        return frozenset(map(str.casefold, found))


# A function that returns the replacement of a match, or None if the match is ordinary text.
Decide = Callable[[re.Match[str], _Surroundings], str | None]


@dataclass(frozen=True)
class _Form:
    """A placeholder syntax, such as `{{ … }}`."""

    # Each repetition in a pattern is bounded or stops at the next mark. Otherwise, a hostile text
    # could make the search take quadratic time.
    pattern: re.Pattern[str]
    decide: Decide = lambda _match, _surroundings: ""


def _wiki_link(match: re.Match[str], _: _Surroundings) -> str | None:
    """Return the visible text of a wiki link. For a merge tag, return an empty text."""
    field = match["field"]
    if _is_field(field) or re.search(r"[_:]| OR ", field):
        return ""
    return field.rpartition("|")[2].strip()


def _percent(match: re.Match[str], _: _Surroundings) -> str | None:
    field = match["field"]
    if _is_field(field) or re.search(r"[_.:]", field):
        return ""
    return "" if _is_shouted(field) and field.casefold() not in _WINDOWS_VARIABLES else None


def _shortcode(match: re.Match[str], surroundings: _Surroundings) -> str | None:
    name, attributes = match["name"], match["attributes"]
    if name in surroundings.ended or re.search(rf"=\s?{_QUOTED}", attributes):
        return ""
    is_link = match["target"] or name.casefold() in surroundings.references
    is_index = re.search(r"\w\Z", match.string[max(match.start() - 1, 0) : match.start()])
    if is_link or (is_index and not attributes):
        return None
    if name in _SHORTCODES or ("_" in name and not name.startswith("_")):
        return ""
    return "" if "-" in name and "=" in attributes else None


def _square_field(match: re.Match[str], surroundings: _Surroundings) -> str | None:
    field = match["field"]
    if field.casefold() in surroundings.references:
        return None
    return "" if _is_field(field) or _has_owner(field, ":") else None


def _brace_field(match: re.Match[str], surroundings: _Surroundings) -> str | None:
    field = match["field"]
    name = re.split(r"[^\w-]", field, maxsplit=1)[0]
    is_code = (
        name in surroundings.ended_in_braces
        or name in _COMMANDS
        or (name in {"else", "elseif"} and "if" in surroundings.ended_in_braces)
        or re.search(rf"\s[\w-]{{1,60}}={_QUOTED}", field)
    )
    if match["sigil"] is not None or is_code:
        return ""
    named = re.fullmatch(rf"({_FIELD_NAME}?){_FALLBACK}", field)
    # Braces in a path, such as `/users/{name}`, are ordinary text.
    around = match.string[max(match.start() - 1, 0) : match.end() + 1].replace(match[0], "")
    if named is None or re.search(r"[\w/=?&]", around):
        return None
    is_snake_case = "_" in named[1].strip("_ ") and " " not in named[1]
    is_field = _is_field(named[1]) or _has_owner(named[1], ":.=") or _is_shouted(named[1])
    return "" if is_field or is_snake_case else None


def _known_field(match: re.Match[str], _: _Surroundings) -> str | None:
    return "" if _is_field(match["field"]) else None


_FORMS = (
    # Comments in Liquid and Twig.
    _Form(
        re.compile(
            r"\{%-? ?comment ?-?%\}(?:[^{]|\{(?!%)){0,5000}+\{%-? ?endcomment ?-?%\}", re.IGNORECASE
        )
    ),
    # Templates of Mustache, Handlebars, Liquid, Jinja, Twig and Hugo.
    _Form(re.compile(r"\{\{\{?(?P<field>(?:[^{}]|\{(?!\{)|\}(?!\})){0,1000}+)\}\}\}?")),
    _Form(re.compile(r"\{%(?:[^{%]|%(?!\})|\{(?!%)){0,1000}+%\}")),
    _Form(re.compile(r"\{#(?:[^{#]|#(?!\})|\{(?!#)){0,1000}+#\}")),
    # Code in ERB, EJS and PHP.
    _Form(re.compile(r"<%(?:[^<%]|%(?!>)|<(?!%)){0,2000}+%>")),
    _Form(re.compile(r"<\?(?:[^<?]|\?(?!>)|<(?!\?)){0,2000}+\?>")),
    # Merge tags of Mailchimp.
    _Form(re.compile(r"\*\|(?P<field>[^|*\n]{1,200})\|\*")),
    # Merge tags of Salesforce, Pardot and Ghost.
    _Form(re.compile(r"%%(?P<field>\[(?:[^%]|%(?!%)){0,2000}+|[\w={(][^%\n]{0,200}+)%%")),
    # Merge tags of ActiveCampaign and Mailgun.
    _Form(re.compile(r"(?<![\w%])%(?P<field>[^\W\d][\w.:-]{1,60})%(?![\w%\\/])"), _percent),
    # Merge tags of Iterable and Emma.
    _Form(re.compile(r"\[%(?P<field>[^\[\]\n]{1,200})%\]")),
    # Merge tags of Zoho.
    _Form(re.compile(r"\$\[(?P<field>[^\[\]\n]{1,200})\]\$")),
    # Tags of MODX.
    _Form(re.compile(r"\[\[[!*+$~]{1,2}\w[^\[\]\n]{0,200}\]\]")),
    # Merge tags of Mailjet and GetResponse, and links in wikis.
    _Form(re.compile(r"(?<![\w\])])\[\[(?P<field>[^\W\d][^\[\]\n]{0,200})\]\](?!\()"), _wiki_link),
    # Merge tags of MailPoet, Drupal, phpList and Sendy.
    _Form(
        re.compile(rf"(?<![\w\])!])\[(?P<field>{_FIELD_NAME}?){_FALLBACK}\](?![(:\[])"),
        _square_field,
    ),
    # Shortcodes of WordPress and its page builders, and BBCode.
    _Form(
        re.compile(
            rf"(?<!!)\[(?P<name>{_NAME})"
            rf"(?P<attributes>(?:=(?:{_QUOTED}|[^\s\[\]]{{1,200}}+)"
            rf"|\s{{1,20}}(?:[\w:.-]{{1,60}}+\s?=\s?(?:{_QUOTED}|[^\s\[\]]{{1,200}}+)"
            rf"|{_QUOTED}|[\w/.:,#-]{{1,60}}+))*+)"
            r"\s{0,20}/?\](?P<target>\(|:(?=\s))?"
        ),
        _shortcode,
    ),
    _Form(re.compile(rf"\[/(?P<name>{_NAME})\s?\](?!\()")),
    # Merge tags of Smarty, MailerLite, AWeber, CleverReach, Mautic and Joomla, and placeholders in
    # JavaScript and Ruby.
    _Form(
        re.compile(
            r"(?<!\{)(?P<sigil>[$#@](?=\{)|(?=\{[$!]))?"
            r"\{[$!]?(?P<field>[^\W\d][^{}\n]{0,200})\}(?!\})"
        ),
        _brace_field,
    ),
    _Form(re.compile(rf"\{{/{_NAME}\}}")),
    # Attributes in Kramdown and Pandoc.
    _Form(re.compile(r"\{:? ?[.#][^\W\d][^{}\n]{0,200}\}")),
    _Form(re.compile(r"\{::?[^\W\d/][^{}\n]{0,200}\}")),
    # Merge tags of Moosend and Keap.
    _Form(re.compile(r"(?<![\w#&])#(?P<field>[a-z]{1,20}:[\w .-]{1,60})#(?!\w)"), _known_field),
    _Form(re.compile(r"(?<!\w)~(?P<field>[A-Z]\w{0,40}\.\w{1,40})~(?!\w)")),
    # Merge tags of Dotdigital, Word and other programs.
    _Form(re.compile(r"(?P<mark>##|__|[#$~@])(?P<field>[A-Z][A-Z_]{2,40})(?P=mark)"), _known_field),
    _Form(re.compile(r"(?<![\w|])\|(?P<field>[A-Z][A-Z_]{2,40})\|(?![\w|])"), _known_field),
    _Form(re.compile(r"(?:<<|«)(?P<field>[^\W\d][\w ]{1,40})(?:>>|»)"), _known_field),
)
_ANY_OPENING = re.compile(r"[{\[%$#@~«_|]|<[<%?]|\*\|")


def remove_marks(text: str) -> str:
    """Remove all template marks. The text between a start mark and an end mark stays."""
    if not _ANY_OPENING.search(text):
        return text
    surroundings = _Surroundings(text)
    for form in _FORMS:
        removals = list(_removals(form, text, surroundings))
        if removals:
            text = "".join(_pieces(text, removals))
    return text


class _Removal(NamedTuple):
    start: int
    end: int
    # The text that replaces the mark.
    rest: str
    is_person: bool
    is_inline: bool


def _removals(form: _Form, text: str, surroundings: _Surroundings) -> Iterator[_Removal]:
    for match in form.pattern.finditer(text):
        rest = form.decide(match, surroundings)
        if rest is None:
            continue
        groups = match.groupdict()
        # The pattern matches the character after a shortcode only to detect links, so keep that
        # character.
        end = match.end() - len(groups.get("target") or "")
        is_person = not rest and _is_person(groups.get("field") or "")
        yield _Removal(match.start(), end, rest, is_person, groups.get("name") in _INLINE)


_LEFT_OPEN = frozenset("([{“‘«\"'")
_RIGHT_CLOSED = frozenset(".,;:!?)]}…。，、！？；：")
_END_OF_MARKUP = r"(?:</[a-z]{1,10}>|[*_]{1,3})?"
_COMMA = re.compile(rf"(?P<markup>{_END_OF_MARKUP}) ?[,，、][ \t]{{0,3}}", re.IGNORECASE)
_SENTENCE_END = re.compile(rf"{_END_OF_MARKUP}\s{{0,3}}(?:[.!?…]|[\n<]|\Z)", re.IGNORECASE)
_SENTENCE_START = re.compile(r"(?:\A|[\n>.!?…])(?:\s|[*_]|<[a-z]{1,10}>){0,3}\Z", re.IGNORECASE)
_MAX_GREETING_CHARACTERS = 60


def _pieces(text: str, removals: list[_Removal]) -> Iterator[str]:
    """Yield the parts of the text that remain after the marks are removed.

    If a mark inserts a person's name, the greeting and the comma next to the mark are removed too.
    """
    at = 0
    for removal in _joined(text, removals):
        left, at, begins_sentence = text[at : removal.start], removal.end, False
        if not (removal.rest or removal.is_inline):
            left, at, begins_sentence = _without_comma(text, left, removal)
        right = text[at : at + 1]
        if right in _RIGHT_CLOSED:
            left = left.rstrip(" ")
        yield left
        if removal.rest:
            yield removal.rest
        elif not removal.is_inline and _are_words_apart(left[-1:], right):
            yield " "
        if begins_sentence and right.isalpha():
            yield right.upper()
            at += 1
    yield text[at:]


def _are_words_apart(left: str, right: str) -> bool:
    """Return whether a mark between these two characters must be replaced by a space."""
    is_left_open = not left.strip() or left in _LEFT_OPEN
    return not (is_left_open or not right.strip() or right in _RIGHT_CLOSED)


def _joined(text: str, removals: list[_Removal]) -> Iterator[_Removal]:
    """Yield the removals. Adjacent marks, such as first and last name, are removed together."""
    joined = removals[0]
    for removal in removals[1:]:
        between = text[joined.end : removal.start]
        if joined.is_person and removal.is_person and len(between) <= 1 and not between.strip():
            joined = joined._replace(end=removal.end)
        else:
            yield joined
            joined = removal
    yield joined


def _without_comma(text: str, left: str, removal: _Removal) -> tuple[str, int, bool]:
    """Remove the comma next to a removed mark if the comma is no longer needed.

    If the mark inserts a person's name, a greeting before the mark is removed too. Returns the text
    before the mark, the position of the text after the mark, and whether a sentence begins there.
    """
    comma = _COMMA.match(text, removal.end)
    own_left = left.rstrip()
    follows_comma = own_left.endswith(",")
    if comma is None:
        ends_sentence = _SENTENCE_END.match(text, removal.end)
        is_name_at_end = removal.is_person and follows_comma and ends_sentence
        return own_left[:-1] if is_name_at_end else left, removal.end, False
    if follows_comma:
        own_left = own_left[:-1] if removal.is_person else own_left
        return f"{own_left}{comma['markup']} ", comma.end(), False
    greeting = _greeting().search(left, max(len(left) - _MAX_GREETING_CHARACTERS, 0))
    if greeting is not None and removal.is_person:
        left = left[: greeting.start("greeting")] + greeting["markup"]
    begins_sentence = bool(_SENTENCE_START.search(left, max(len(left) - 40, 0)))
    if begins_sentence or removal.is_person:
        return left + comma["markup"], comma.end(), begins_sentence
    return left, removal.end, False


@cache
def _greeting() -> re.Pattern[str]:
    words = Path(__file__).with_name("greetings.txt").read_text("utf-8").split()
    longest_first = sorted(words, key=len, reverse=True)
    greetings = "|".join(re.escape(word).replace("_", " ") for word in longest_first)
    return re.compile(
        rf"(?:\A|(?<=[\n>*_.!?…])) {{0,3}}(?P<greeting>(?:{greetings})"
        r"(?: (?:herr|frau|mr|mrs|ms|dr)\.?)?) {0,3}(?P<markup>(?:<[a-z]{1,10}>|[*_]{1,3})?)\Z",
        re.IGNORECASE,
    )


@cache
def _names(kind: str) -> frozenset[str]:
    """Load the known field names of a kind: ``person`` for names of people, or ``other``."""
    lines = Path(__file__).with_name("field_names.txt").read_text("utf-8").splitlines()
    parts = (line.partition(": ") for line in lines)
    return frozenset(name for each, _, names in parts if each == kind for name in names.split())


def _path(field: str) -> list[str]:
    """Split a field's name: `Subscriber:first_name` becomes `subscriber` and `firstname`."""
    return [_SEPARATORS.sub("", part.casefold()) for part in re.split(r"[.:=]", field)]


def _is_field(field: str) -> bool:
    """Return whether a newsletter program has a field with this name."""
    match = _FIELD.match(field)
    path = _path(match[0]) if match else [""]
    return any(name in _names(kind) for name in ("".join(path), path[-1]) for kind in _KINDS)


def _has_owner(field: str, separators: str) -> bool:
    """Return whether this is a field of a known object, such as `subscriber:city`."""
    owner = re.match(rf"([\w-]{{1,60}})[{separators}]\w", field)
    return owner is not None and _SEPARATORS.sub("", owner[1].casefold()) in _OWNERS


def _is_person(expression: str) -> bool:
    """Return whether the expression in a merge tag inserts a person's name."""
    fields = [match[0] for match in _FIELD.finditer(expression[:200])]
    words = (word for field in fields for word in (*_path(field), *_path(field.partition(" ")[0])))
    return not _names(_PERSON).isdisjoint(words)


def _is_shouted(field: str) -> bool:
    return field.isupper() and field.isidentifier() and len(field) >= _MIN_SHOUTED_LETTERS
