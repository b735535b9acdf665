"""``python -m cli.message_catalogues``: bring the catalogues of readers' languages up to date.

Each file of ``core/languages/catalogues`` gets the texts that are new, without a translation, and
loses those that are gone. A text that only changed a little keeps its translation, marked fuzzy: it
counts as missing until a person has looked at it and taken the mark away.
"""

import ast
from collections import defaultdict
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

from babel.messages.catalog import Catalog
from babel.messages.pofile import read_po, write_po
from jinja2 import Environment

ROOT = Path(__file__).parents[1]
CATALOGUES = ROOT / "core" / "languages" / "catalogues"
API = ROOT / "api"
MAILS = ROOT / "services" / "accounts" / "templates"
# Readers see these; all other templates are of owners' and operators' pages and mails.
READER_TEMPLATES = (
    *(
        page
        for page in sorted((*API.glob("html/templates/*"), *API.glob("pages/*/templates/*")))
        if page.stem
        in {
            *("answers", "ask_preferences", "asked_preferences", "base", "confirm", "embed_form"),
            *("erase", "open_preferences", "own_data", "preferences", "problem", "reader_form"),
            *("report", "report_page", "sign_up", "subscribed", "unsubscribe", "visit_ended"),
        }
    ),
    *(
        MAILS / f"{name}.{kind}"
        for name in ("confirm_subscription", "preferences", "welcome")
        for kind in ("txt", "html")
    ),
    MAILS / "frame.html",
)
_MODULES = ("api", "core", "services")
_MAX_LINE_CHARACTERS = 110


def texts() -> dict[str, set[str]]:
    """Each text for readers, and the files that have it."""
    found = defaultdict(set)
    for path in READER_TEMPLATES:
        for text in _of_template(path):
            found[text].add(path.relative_to(ROOT).as_posix())
    for package in _MODULES:
        for path in (ROOT / package).rglob("*.py"):
            for text in _of_module(path):
                found[text].add(path.relative_to(ROOT).as_posix())
    return dict(found)


def _of_template(path: Path) -> Iterator[str]:
    templates = Environment(extensions=["jinja2.ext.i18n"], autoescape=True)
    templates.policies["ext.i18n.trimmed"] = True
    source = path.read_text()
    for _, _, found in templates.extract_translations(source):  # type: ignore[attr-defined] # the extension adds it
        yield from (each for each in (found if isinstance(found, tuple) else (found,)) if each)


def _of_module(path: Path) -> Iterator[str]:
    source = path.read_text()
    if "marked(" not in source:
        return
    for node in ast.walk(ast.parse(source)):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "marked"
        ):
            [text] = [each.value for each in node.args if isinstance(each, ast.Constant)]
            yield str(text)


def template() -> Catalog:
    """A catalogue without translations."""
    made = Catalog(project="Pressroom", charset="utf-8", fuzzy=False)
    for text, places in sorted(texts().items(), key=lambda each: (sorted(each[1]), each[0])):
        # Without line numbers, which would change with each edit.
        made.add(text, locations=[(place, 0) for place in sorted(places)])
    return made


def read(path: Path) -> Catalog:
    with path.open("rb") as file:
        return read_po(file, locale=path.stem)


def main() -> None:
    for path in sorted(CATALOGUES.glob("*.po")):
        catalogue = read(path)
        catalogue.update(template())
        catalogue.obsolete.clear()
        entries = BytesIO()
        write_po(
            entries,
            catalogue,
            width=_MAX_LINE_CHARACTERS,
            omit_header=True,
            include_lineno=False,
            ignore_obsolete=True,
        )
        # The header stays as it is written: Babel would put the time of each run into it.
        header = path.read_text().partition("\n\n")[0]
        path.write_text(f"{header}\n\n{entries.getvalue().decode().strip()}\n")


if __name__ == "__main__":
    main()
