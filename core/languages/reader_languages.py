"""The languages in which readers get pages and mails. Owners and operators read English.

The texts stand in the templates and modules in English. A catalogue in ``catalogues/`` has them in
one other language; a file that is put there is a language from the next start on.
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
# No browser sends a longer list of languages.
MAX_HEADER_CHARACTERS = 500

_CATALOGUES = files(__package__).joinpath("catalogues")
_RANGE = re.compile(
    r"\s*(?P<name>[a-z]{1,8}(?:-[a-z0-9]{1,8})*)\s*(?:;\s*q=(?P<weight>[01](?:\.\d{0,3})?)\s*)?\Z",
    re.IGNORECASE | re.ASCII,
)


@cache
def languages() -> tuple[str, ...]:
    """The names of all languages, as HTML writes them: ``de``, ``pt-BR``. English is first."""
    names = (each.name for each in _CATALOGUES.iterdir() if each.name.endswith(".po"))
    return (ENGLISH, *sorted(each.removesuffix(".po").replace("_", "-") for each in names))


def chosen(accepted: str) -> str:
    """The language that the header ``Accept-Language`` likes best; English where we have none."""
    ours = {each.lower(): each for each in languages()}
    for wanted in _wanted(accepted[:MAX_HEADER_CHARACTERS]):
        # RFC 4647, 3.4: cut the name at its end until there is such a language.
        name = wanted
        while name and name not in ours:
            name = name.rpartition("-")[0]
        if name:
            return ours[name]
    return ENGLISH


def known(name: str | None) -> str:
    """The language of this name, as a row keeps it; English for one that is gone since."""
    return name if name in languages() else ENGLISH


def translated(language: str, text: str) -> str:
    """A text that is ``marked``, in this language."""
    return translations(language).gettext(text)


def marked(text: str) -> str:
    """Return the text unchanged. Texts in calls of ``marked`` are collected for translation."""
    return text


@cache
def translations(language: str) -> NullTranslations:
    """The texts of a language, compiled from its catalogue once a process."""
    if language == ENGLISH:
        return NullTranslations()
    source = _CATALOGUES.joinpath(f"{language.replace('-', '_')}.po").read_bytes()
    compiled = BytesIO()
    write_mo(compiled, read_po(BytesIO(source)))
    compiled.seek(0)
    return GNUTranslations(compiled)


def _wanted(accepted: str) -> list[str]:
    """Names in lower case, the dearest first; those of weight 0 are left out."""
    found = [match for each in accepted.split(",") if (match := _RANGE.match(each))]
    weighed = [(float(each["weight"] or 1), each["name"].lower()) for each in found]
    return [name for weight, name in sorted(weighed, key=lambda each: -each[0]) if weight > 0]


def templates_in(language: str, loader: BaseLoader) -> Environment:
    """HTML is escaped, plain text is not. A name that has no value is an error."""
    templates = Environment(
        loader=loader,
        autoescape=select_autoescape(["html"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.i18n"],
    )
    templates.policies["ext.i18n.trimmed"] = True
    templates.install_gettext_translations(translations(language), newstyle=True)  # type: ignore[attr-defined] # the extension adds it
    templates.globals["language"] = language
    return templates
