"""Translates the pages and mails that readers of newsletters receive.

Pages for owners and operators are in English. Each catalogue in ``catalogues/`` contains the
translations for one language. New translation catalogues take effect after a restart.
"""

import re
from functools import cache
from gettext import GNUTranslations, NullTranslations
from importlib.resources import files
from io import BytesIO

from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po
from jinja2 import BaseLoader, Environment, StrictUndefined, select_autoescape

ENGLISH = "en"
# The maximum number of characters of an ``Accept-Language`` header that are parsed, to limit the
# parsing time.
MAX_HEADER_CHARACTERS = 500

_CATALOGUES = files(__package__).joinpath("catalogues")
_RANGE = re.compile(
    r"\s*(?P<name>[a-z]{1,8}(?:-[a-z0-9]{1,8})*)\s*(?:;\s*q=(?P<weight>[01](?:\.\d{0,3})?)\s*)?\Z",
    re.IGNORECASE | re.ASCII,
)


@cache
def list_languages() -> tuple[str, ...]:
    """Return the tags of the supported languages, such as ``pt-BR``, with English first."""
    file_names = (file.name for file in _CATALOGUES.iterdir() if file.name.endswith(".po"))
    return (ENGLISH, *sorted(name.removesuffix(".po").replace("_", "-") for name in file_names))


def choose_language(accept_language: str) -> str:
    """Return the supported language that best fits an ``Accept-Language`` header, or English."""
    names_by_lower_case = {name.lower(): name for name in list_languages()}
    for preferred_name in _parse_preferences(accept_language[:MAX_HEADER_CHARACTERS]):
        # Shorten the language tag, subtag by subtag, until it matches a supported language (RFC
        # 4647, 3.4).
        name = preferred_name
        while name and name not in names_by_lower_case:
            name = name.rpartition("-")[0]
        if name:
            return names_by_lower_case[name]
    return ENGLISH


def available_language(name: str | None) -> str:
    """Return a stored language, or English if Pressroom no longer supports the language."""
    return name if name in list_languages() else ENGLISH


def translate(language: str, text: str) -> str:
    return load_translations(language).gettext(text)


def marked(text: str) -> str:
    return text


@cache
def load_translations(language: str) -> NullTranslations:
    if language == ENGLISH:
        return NullTranslations()
    source = _CATALOGUES.joinpath(f"{language.replace('-', '_')}.po").read_bytes()
    compiled = BytesIO()
    write_mo(compiled, read_po(BytesIO(source)))
    compiled.seek(0)
    return GNUTranslations(compiled)


def create_templates(language: str, loader: BaseLoader) -> Environment:
    """Return an environment that escapes values only in HTML, and rejects undefined variables."""
    templates = Environment(
        loader=loader,
        autoescape=select_autoescape(["html"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.i18n"],
    )
    templates.policies["ext.i18n.trimmed"] = True
    templates.install_gettext_translations(load_translations(language), newstyle=True)  # type: ignore[attr-defined] # the extension adds it
    templates.globals["language"] = language
    return templates


def _parse_preferences(accept_language: str) -> list[str]:
    """Return language tags by descending weight, but omit tags with weight 0 ("not acceptable")."""
    ranges = [match for part in accept_language.split(",") if (match := _RANGE.match(part))]
    preferences = [(float(match["weight"] or 1), match["name"].lower()) for match in ranges]
    by_weight = sorted(preferences, key=lambda preference: -preference[0])
    return [name for weight, name in by_weight if weight > 0]
