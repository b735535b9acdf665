"""``python -m cli.message_catalogues``: bring the catalogues of readers' languages up to date.

Each file of ``core/languages/catalogues`` gets the texts that are new, without a translation, and
loses those that are gone. A text that only changed a little keeps its translation, marked fuzzy: it
counts as missing until a person has looked at it and taken the mark away.
"""

from collections import defaultdict
from io import BytesIO
from pathlib import Path

from babel.messages.catalog import Catalog
from babel.messages.extract import DEFAULT_KEYWORDS, extract_from_file
from babel.messages.pofile import read_po, write_po

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
_KEYWORDS = {**DEFAULT_KEYWORDS, "marked": None}
_MAX_LINE_CHARACTERS = 110


def texts() -> dict[str, set[str]]:
    """Each text for readers, and the files that have it."""
    found = defaultdict(set)
    modules = [path for package in _MODULES for path in (ROOT / package).rglob("*.py")]
    marked = [path for path in modules if "marked(" in path.read_text()]
    for method, paths in (("jinja2", READER_TEMPLATES), ("python", marked)):
        for path in paths:
            extracted = extract_from_file(method, path, _KEYWORDS, options={"trimmed": "true"})
            for _, texts_, _, _ in extracted:
                for text in texts_ if isinstance(texts_, tuple) else (texts_,):
                    found[text].add(path.relative_to(ROOT).as_posix())
    return dict(found)


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
