"""Removes template placeholders, such as shortcodes and merge tags, from posts.

Blog and newsletter software replaces template placeholders before readers see a post. Shortcodes
such as `[gallery]` insert elements into a post. Merge tags such as `{{ first_name }}` insert data
about the reader.
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
# Matches the fallback in a merge tag. A reader sees the fallback if the reader has no value for the
# field.
_FALLBACK = (
    r"(?: ?(?:\|[^\[\]{}\n]{0,100}|, ?(?:fallback|default)=[^\[\]{}\n]{0,100}"
    r"|, ?\"[^\"\n]{0,100}\"|%%[^\[\]{}\n]{0,100}))?"
)

# The shortcodes that are recognised even without an end tag or an attribute.
_SHORTCODES = frozenset(
    "gallery playlist nextpage contact-form contact-form-7 youtube vimeo soundcloud spotify "
    "instagram wpvideo googlemaps".split()
)
_COMMANDS = frozenset({"loadposition", "loadmodule", "loadmoduleid", "loadarticle", "include"})
# The BBCode tags that can occur inside a word or sentence, such as `[b]`.
_INLINE = frozenset("b i u s em strong sup sub color colour size font highlight url".split())
_WINDOWS_VARIABLES = frozenset(
    "path temp tmp appdata localappdata userprofile homepath homedrive programfiles programdata "
    "windir systemroot systemdrive comspec computername public allusersprofile username".split()
)
# The objects in merge tags, such as `subscriber` in `subscriber:firstname`.
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
_MAX_GREETING_CHARACTERS = 60
# Matches the opening delimiter of any template placeholder.
_ANY_OPENING = re.compile(r"[{\[%$#@~«_|]|<[<%?]|\*\|")
_OPENING_CHARACTERS = frozenset("([{“‘«\"'")
_CLOSING_CHARACTERS = frozenset(".,;:!?)]}…。，、！？；：")
_END_OF_MARKUP = r"(?:</[a-z]{1,10}>|[*_]{1,3})?"
_COMMA = re.compile(rf"(?P<markup>{_END_OF_MARKUP}) ?[,，、][ \t]{{0,3}}", re.IGNORECASE)
_SENTENCE_END = re.compile(rf"{_END_OF_MARKUP}\s{{0,3}}(?:[.!?…]|[\n<]|\Z)", re.IGNORECASE)
_SENTENCE_START = re.compile(r"(?:\A|[\n>.!?…])(?:\s|[*_]|<[a-z]{1,10}>){0,3}\Z", re.IGNORECASE)


class _Surroundings:
    """A word such as `[b]` is a placeholder if the text contains the end tag `[/b]`.

    Brackets with a link reference are ordinary text.
    """

    def __init__(self, text: str) -> None:
        self._text = text

    @cached_property
    def ended(self) -> frozenset[str]:
        return frozenset(re.findall(rf"\[/({_NAME})\s?\]", self._text))

    @cached_property
    def ended_in_braces(self) -> frozenset[str]:
        return frozenset(re.findall(rf"\{{/({_NAME})\}}", self._text))

    @cached_property
    def references(self) -> frozenset[str]:
        """Find link references, such as `docs` in `[docs]: https://docs.example`."""
        names = re.findall(r"^ {0,3}\[([^\]\n]{1,100})\]:", self._text, re.MULTILINE)
        return frozenset(map(str.casefold, names))


# Returns the replacement for a matched placeholder, or ``None`` if the match is ordinary text.
Decide = Callable[[re.Match[str], _Surroundings], str | None]


@dataclass(frozen=True)
class _Form:
    """A syntax of template placeholders, such as `{{ … }}`."""

    # Repetitions in the pattern must be bounded or stop at the next template placeholder, because a
    # hostile text could otherwise cause quadratic time.
    pattern: re.Pattern[str]
    decide: Decide = lambda _match, _surroundings: ""


def _replace_wiki_link(match: re.Match[str], _: _Surroundings) -> str | None:
    """Return the visible text of a wiki link, or an empty string for a merge tag."""
    field = match["field"]
    if _is_field(field) or re.search(r"[_:]| OR ", field):
        return ""
    return field.rpartition("|")[2].strip()


def _replace_percent_field(match: re.Match[str], _: _Surroundings) -> str | None:
    field = match["field"]
    if _is_field(field) or re.search(r"[_.:]", field):
        return ""
    return "" if _is_shouted(field) and field.casefold() not in _WINDOWS_VARIABLES else None


def _replace_shortcode(match: re.Match[str], surroundings: _Surroundings) -> str | None:
    name = match["name"]
    attributes = match["attributes"]
    if name in surroundings.ended or re.search(rf"=\s?{_QUOTED}", attributes):
        return ""
    is_link = match["target"] or name.casefold() in surroundings.references
    is_index = re.search(r"\w\Z", match.string[max(match.start() - 1, 0) : match.start()])
    if is_link or (is_index and not attributes):
        return None
    if name in _SHORTCODES or ("_" in name and not name.startswith("_")):
        return ""
    return "" if "-" in name and "=" in attributes else None


def _replace_square_field(match: re.Match[str], surroundings: _Surroundings) -> str | None:
    field = match["field"]
    if field.casefold() in surroundings.references:
        return None
    return "" if _is_field(field) or _has_owner(field, ":") else None


def _replace_brace_field(match: re.Match[str], surroundings: _Surroundings) -> str | None:
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


def _replace_known_field(match: re.Match[str], _: _Surroundings) -> str | None:
    return "" if _is_field(match["field"]) else None


_FORMS = (
    # Matches comments in Liquid and Twig.
    _Form(
        re.compile(
            r"\{%-? ?comment ?-?%\}(?:[^{]|\{(?!%)){0,5000}+\{%-? ?endcomment ?-?%\}", re.IGNORECASE
        )
    ),
    # Matches templates of Mustache, Handlebars, Liquid, Jinja, Twig and Hugo.
    _Form(re.compile(r"\{\{\{?(?P<field>(?:[^{}]|\{(?!\{)|\}(?!\})){0,1000}+)\}\}\}?")),
    _Form(re.compile(r"\{%(?:[^{%]|%(?!\})|\{(?!%)){0,1000}+%\}")),
    _Form(re.compile(r"\{#(?:[^{#]|#(?!\})|\{(?!#)){0,1000}+#\}")),
    # Matches template code in ERB, EJS and PHP.
    _Form(re.compile(r"<%(?:[^<%]|%(?!>)|<(?!%)){0,2000}+%>")),
    _Form(re.compile(r"<\?(?:[^<?]|\?(?!>)|<(?!\?)){0,2000}+\?>")),
    # Matches merge tags of Mailchimp.
    _Form(re.compile(r"\*\|(?P<field>[^|*\n]{1,200})\|\*")),
    # Matches merge tags of Salesforce, Pardot and Ghost.
    _Form(re.compile(r"%%(?P<field>\[(?:[^%]|%(?!%)){0,2000}+|[\w={(][^%\n]{0,200}+)%%")),
    # Matches merge tags of ActiveCampaign and Mailgun.
    _Form(
        re.compile(r"(?<![\w%])%(?P<field>[^\W\d][\w.:-]{1,60})%(?![\w%\\/])"),
        _replace_percent_field,
    ),
    # Matches merge tags of Iterable and Emma.
    _Form(re.compile(r"\[%(?P<field>[^\[\]\n]{1,200})%\]")),
    # Matches merge tags of Zoho.
    _Form(re.compile(r"\$\[(?P<field>[^\[\]\n]{1,200})\]\$")),
    # Matches tags of the content management system MODX.
    _Form(re.compile(r"\[\[[!*+$~]{1,2}\w[^\[\]\n]{0,200}\]\]")),
    # Matches merge tags of Mailjet and GetResponse, and links in wikis.
    _Form(
        re.compile(r"(?<![\w\])])\[\[(?P<field>[^\W\d][^\[\]\n]{0,200})\]\](?!\()"),
        _replace_wiki_link,
    ),
    # Matches merge tags of MailPoet, Drupal, phpList and Sendy.
    _Form(
        re.compile(rf"(?<![\w\])!])\[(?P<field>{_FIELD_NAME}?){_FALLBACK}\](?![(:\[])"),
        _replace_square_field,
    ),
    # Matches shortcodes of WordPress and its page builders, and BBCode.
    _Form(
        re.compile(
            rf"(?<!!)\[(?P<name>{_NAME})"
            rf"(?P<attributes>(?:=(?:{_QUOTED}|[^\s\[\]]{{1,200}}+)"
            rf"|\s{{1,20}}(?:[\w:.-]{{1,60}}+\s?=\s?(?:{_QUOTED}|[^\s\[\]]{{1,200}}+)"
            rf"|{_QUOTED}|[\w/.:,#-]{{1,60}}+))*+)"
            r"\s{0,20}/?\](?P<target>\(|:(?=\s))?"
        ),
        _replace_shortcode,
    ),
    _Form(re.compile(rf"\[/(?P<name>{_NAME})\s?\](?!\()")),
    # Matches merge tags of Smarty, MailerLite, AWeber, CleverReach, Mautic and Joomla, and
    # placeholders in JavaScript and Ruby.
    _Form(
        re.compile(
            r"(?<!\{)(?P<sigil>[$#@](?=\{)|(?=\{[$!]))?"
            r"\{[$!]?(?P<field>[^\W\d][^{}\n]{0,200})\}(?!\})"
        ),
        _replace_brace_field,
    ),
    _Form(re.compile(rf"\{{/{_NAME}\}}")),
    # Matches attributes in the Markdown dialects of Kramdown and Pandoc.
    _Form(re.compile(r"\{:? ?[.#][^\W\d][^{}\n]{0,200}\}")),
    _Form(re.compile(r"\{::?[^\W\d/][^{}\n]{0,200}\}")),
    # Matches merge tags of Moosend and Keap.
    _Form(
        re.compile(r"(?<![\w#&])#(?P<field>[a-z]{1,20}:[\w .-]{1,60})#(?!\w)"), _replace_known_field
    ),
    _Form(re.compile(r"(?<!\w)~(?P<field>[A-Z]\w{0,40}\.\w{1,40})~(?!\w)")),
    # Matches merge tags of Dotdigital, Word and other programs.
    _Form(
        re.compile(r"(?P<mark>##|__|[#$~@])(?P<field>[A-Z][A-Z_]{2,40})(?P=mark)"),
        _replace_known_field,
    ),
    _Form(re.compile(r"(?<![\w|])\|(?P<field>[A-Z][A-Z_]{2,40})\|(?![\w|])"), _replace_known_field),
    _Form(re.compile(r"(?:<<|«)(?P<field>[^\W\d][\w ]{1,40})(?:>>|»)"), _replace_known_field),
)


def remove_marks(text: str) -> str:
    """Remove all placeholders. The text between the start and end tags of a shortcode is kept."""
    if not _ANY_OPENING.search(text):
        return text
    surroundings = _Surroundings(text)
    for form in _FORMS:
        removals = list(_find_removals(form, text, surroundings))
        if removals:
            text = "".join(_iterate_pieces(text, removals))
    return text


class _Removal(NamedTuple):
    start: int
    end: int
    replacement: str
    is_person: bool
    is_inline: bool


def _find_removals(form: _Form, text: str, surroundings: _Surroundings) -> Iterator[_Removal]:
    for match in form.pattern.finditer(text):
        replacement = form.decide(match, surroundings)
        if replacement is None:
            continue
        groups = match.groupdict()
        # Keep the character after a shortcode. The pattern contains the character after a shortcode
        # only to rule out Markdown links.
        end = match.end() - len(groups.get("target") or "")
        is_person = not replacement and _is_person(groups.get("field") or "")
        yield _Removal(match.start(), end, replacement, is_person, groups.get("name") in _INLINE)


def _iterate_pieces(text: str, removals: list[_Removal]) -> Iterator[str]:
    at = 0
    for removal in _join_adjacent(text, removals):
        before = text[at : removal.start]
        at = removal.end
        begins_sentence = False
        if not (removal.replacement or removal.is_inline):
            before, at, begins_sentence = _remove_comma(text, before, removal)
        next_character = text[at : at + 1]
        if next_character in _CLOSING_CHARACTERS:
            before = before.rstrip(" ")
        yield before
        if removal.replacement:
            yield removal.replacement
        elif not removal.is_inline and _needs_space(before[-1:], next_character):
            yield " "
        if begins_sentence and next_character.isalpha():
            yield next_character.upper()
            at += 1
    yield text[at:]


def _needs_space(previous: str, following: str) -> bool:
    """Return whether a placeholder must be replaced with a space, to keep two words apart."""
    is_opening = not previous.strip() or previous in _OPENING_CHARACTERS
    return not (is_opening or not following.strip() or following in _CLOSING_CHARACTERS)


def _join_adjacent(text: str, removals: list[_Removal]) -> Iterator[_Removal]:
    """Join adjacent placeholders for a person's name."""
    joined = removals[0]
    for removal in removals[1:]:
        between = text[joined.end : removal.start]
        if joined.is_person and removal.is_person and len(between) <= 1 and not between.strip():
            joined = joined._replace(end=removal.end)
        else:
            yield joined
            joined = removal
    yield joined


def _remove_comma(text: str, before: str, removal: _Removal) -> tuple[str, int, bool]:
    """Remove the comma next to a removed placeholder if the comma is no longer needed.

    If the placeholder stands for a person's name, the preceding greeting is removed too. Returns
    the text before the placeholder, the position after it, and whether a sentence begins there.
    """
    comma = _COMMA.match(text, removal.end)
    stripped = before.rstrip()
    follows_comma = stripped.endswith(",")
    if comma is None:
        ends_sentence = _SENTENCE_END.match(text, removal.end)
        is_name_at_end = removal.is_person and follows_comma and ends_sentence
        return stripped[:-1] if is_name_at_end else before, removal.end, False
    if follows_comma:
        stripped = stripped[:-1] if removal.is_person else stripped
        return f"{stripped}{comma['markup']} ", comma.end(), False
    greeting = _compile_greeting_pattern().search(
        before, max(len(before) - _MAX_GREETING_CHARACTERS, 0)
    )
    if greeting is not None and removal.is_person:
        before = before[: greeting.start("greeting")] + greeting["markup"]
    begins_sentence = bool(_SENTENCE_START.search(before, max(len(before) - 40, 0)))
    if begins_sentence or removal.is_person:
        return before + comma["markup"], comma.end(), begins_sentence
    return before, removal.end, False


@cache
def _compile_greeting_pattern() -> re.Pattern[str]:
    words = Path(__file__).with_name("greetings.txt").read_text("utf-8").split()
    longest_first = sorted(words, key=len, reverse=True)
    greetings = "|".join(re.escape(word).replace("_", " ") for word in longest_first)
    return re.compile(
        rf"(?:\A|(?<=[\n>*_.!?…])) {{0,3}}(?P<greeting>(?:{greetings})"
        r"(?: (?:herr|frau|mr|mrs|ms|dr)\.?)?) {0,3}(?P<markup>(?:<[a-z]{1,10}>|[*_]{1,3})?)\Z",
        re.IGNORECASE,
    )


@cache
def _load_field_names(kind: str) -> frozenset[str]:
    """Load merge fields. ``kind``: ``person`` for fields with a person's name, or ``other``."""
    lines = Path(__file__).with_name("field_names.txt").read_text("utf-8").splitlines()
    parts = (line.partition(": ") for line in lines)
    return frozenset(
        name for name_kind, _, names in parts if name_kind == kind for name in names.split()
    )


def _split_field_name(field: str) -> list[str]:
    """Split a field name such as `Subscriber:first_name` into `subscriber` and `firstname`."""
    return [_SEPARATORS.sub("", part.casefold()) for part in re.split(r"[.:=]", field)]


def _is_field(field: str) -> bool:
    match = _FIELD.match(field)
    path = _split_field_name(match[0]) if match else [""]
    return any(
        name in _load_field_names(kind) for name in ("".join(path), path[-1]) for kind in _KINDS
    )


def _has_owner(field: str, separators: str) -> bool:
    """Detect a known object before the field, as in `subscriber:city`."""
    owner = re.match(rf"([\w-]{{1,60}})[{separators}]\w", field)
    return owner is not None and _SEPARATORS.sub("", owner[1].casefold()) in _OWNERS


def _is_person(expression: str) -> bool:
    fields = [match[0] for match in _FIELD.finditer(expression[:200])]
    words = (
        word
        for field in fields
        for word in (*_split_field_name(field), *_split_field_name(field.partition(" ")[0]))
    )
    return not _load_field_names(_PERSON).isdisjoint(words)


def _is_shouted(field: str) -> bool:
    return field.isupper() and field.isidentifier() and len(field) >= _MIN_SHOUTED_LETTERS
