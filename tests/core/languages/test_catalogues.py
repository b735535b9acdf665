"""Tests that all texts for readers are translated, and that the translations are valid."""

import ast
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from babel.messages.catalog import Catalog
from babel.messages.pofile import read_po
from jinja2 import Environment, nodes

from core.languages.reader_languages import ENGLISH, list_languages, load_translations

pytestmark = pytest.mark.tier("check")

ROOT = Path(__file__).parents[3]
CATALOGUES = ROOT / "core" / "languages" / "catalogues"
API = ROOT / "api"
MAILS = ROOT / "services" / "accounts" / "templates"
# The templates of the pages and mails that readers see. A template that isn't in
# ``READER_TEMPLATES`` is only for owners and operators.
READER_TEMPLATES = (
    *(
        page
        for folder in ("html", "pages/*", "sign_up")
        for page in sorted(API.glob(f"{folder}/templates/*"))
        if page.stem
        in {
            *("ask_preferences", "asked_preferences", "base", "confirm", "embed_form"),
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
PLACEHOLDER = re.compile(r"%\((\w+)\)s")
# Names are the same in every language.
NAMES = {"Pressroom"}
# The HTML attributes with texts that a reader sees or hears.
TEXT_ATTRIBUTES = ("alt", "aria-label", "placeholder", "title")
# The modules that render pages and mails for readers.
READER_MODULES = (
    *(
        path
        for folder in ("pages/preferences", "pages/reports", "pages/unsubscribe", "sign_up")
        for path in sorted((API / folder).glob("*.py"))
        if path.stem != "__init__"
    ),
    ROOT / "services" / "subscriptions" / "members" / "mails.py",
    ROOT / "services" / "subscriptions" / "preferences" / "link_mails.py",
)
each_catalogue = pytest.mark.parametrize(
    "path", sorted(CATALOGUES.glob("*.po")), ids=lambda path: path.stem
)
each_template = pytest.mark.parametrize(
    "path", READER_TEMPLATES, ids=lambda path: path.relative_to(ROOT).as_posix()
)


def test_english_and_german_are_available_as_languages() -> None:
    assert list_languages()[0] == ENGLISH
    assert "de" in list_languages()


def read_catalogue(path: Path) -> Catalog:
    with path.open("rb") as file:
        return read_po(file)


@pytest.fixture(scope="module")
def marked_texts(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    """The texts that `make messages` extracts for translation from templates and Python modules."""
    file = tmp_path_factory.mktemp("messages") / "messages.pot"
    words = ["extract", "-F", "pyproject.toml", "-k", "marked", "-o", str(file)]
    program = Path(sys.executable).with_name("pybabel")
    subprocess.run([program, "-q", *words, "api", "core", "services"], cwd=ROOT, check=True)
    return read_catalogue(file)


@each_catalogue
def test_every_extracted_text_has_reviewed_translation_in_each_catalogue(
    path: Path, marked_texts: Catalog
) -> None:
    catalogue = read_catalogue(path)
    messages = {message.id: message for message in catalogue if message.id}
    assert set(messages) == {each.id for each in marked_texts if each.id}, "run `make messages`"
    assert [each.id for each in messages.values() if not each.string] == []
    assert [each.id for each in messages.values() if each.fuzzy] == []
    assert not catalogue.obsolete


def read_translations(path: Path) -> list[tuple[str, str]]:
    """Return each text of a catalogue with its translation."""
    return [(str(each.id), str(each.string)) for each in read_catalogue(path) if each.id]


@each_catalogue
def test_translations_keep_placeholders_and_contain_no_markup(path: Path) -> None:
    for text, translation in read_translations(path):
        placeholders = sorted(PLACEHOLDER.findall(text))
        assert sorted(PLACEHOLDER.findall(translation)) == placeholders, text
        assert translation.replace("%%", "").count("%") == len(placeholders), text
        # Templates don't escape translated texts, so a translation must not contain markup.
        assert not re.search(r"[<>&]", translation), text
        assert translation == translation.strip(), text


@each_catalogue
def test_loaded_translations_match_catalogue_file(path: Path) -> None:
    compiled = load_translations(path.stem.replace("_", "-"))
    for text, translation in read_translations(path):
        assert compiled.gettext(text) == translation


class VisibleTexts(HTMLParser):
    """Collects from HTML code the texts that a reader sees or hears."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self._hidden = False
        self.feed(html)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self._hidden = tag in {"style", "script"}
        self.texts += [value or "" for name, value in attributes if name in TEXT_ATTRIBUTES]

    def handle_endtag(self, tag: str) -> None:
        self._hidden = False

    def handle_data(self, text: str) -> None:
        if not self._hidden:
            self.texts.append(text)


@each_template
def test_reader_templates_contain_only_texts_marked_for_translation(path: Path) -> None:
    templates = Environment(extensions=["jinja2.ext.i18n"], autoescape=True)
    parsed = templates.parse(path.read_text())
    # Replace each expression of the template by a character, so that an HTML attribute whose value
    # is an expression doesn't lose its value.
    plain = "".join(
        each.data if isinstance(each, nodes.TemplateData) else "\N{OBJECT REPLACEMENT CHARACTER}"
        for output in parsed.find_all(nodes.Output)
        for each in output.nodes
    )
    # Remove HTML attributes that are not inside of a tag, because a Jinja macro may contain
    # attributes without their tag.
    texts = (re.sub(r'[\w-]+="[^"]*"', "", each) for each in VisibleTexts(plain).texts)
    unmarked_words = [word for text in texts for word in re.findall(r"[^\W\d_]{2,}", text)]
    assert set(unmarked_words) <= NAMES


def test_translation_check_covers_every_template_shown_to_readers() -> None:
    """READER_TEMPLATES contains each template that a module or template for readers uses."""
    known = {each.name for each in READER_TEMPLATES}
    # These templates contain only Jinja macros, which get translated texts as arguments.
    known |= {"addresses.html", "buttons.html", "form.html"}
    named = set()
    for module in READER_MODULES:
        for node in ast.walk(ast.parse(module.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                named |= set(re.findall(r"\b[\w-]+\.html\b", node.value))
    for path in READER_TEMPLATES:
        named |= set(re.findall(r'{% (?:extends|from) "([^"]+)"', path.read_text()))
    assert named <= known
    existing = {path.name for folder in (API, MAILS) for path in folder.rglob("*.html")}
    assert named <= existing


@pytest.mark.parametrize("module", READER_MODULES, ids=lambda path: path.stem)
def test_modules_show_readers_only_texts_marked_for_translation(module: Path) -> None:
    """Docstrings, and texts that only API clients see, needn't be marked for translation."""
    tree = ast.parse(module.read_text())
    marked = {
        id(each)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "marked"
        for each in node.args
    }
    untranslated = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    # Error messages, and texts in the keyword arguments ``responses``, ``rule`` and ``summary``,
    # needn't be translated, because only API clients and the OpenAPI document show these texts.
    for node in ast.walk(tree):
        is_for_programs = isinstance(node, ast.keyword) and node.arg in {
            "responses",
            "rule",
            "summary",
        }
        called = getattr(node, "func", None)
        is_error = isinstance(called, ast.Attribute) and called.attr.isupper()
        is_problem = isinstance(called, ast.Name) and called.id == "FieldProblem"
        if is_for_programs or is_error or is_problem:
            untranslated |= {id(each) for each in ast.walk(node)}
    sentences = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and id(node) not in marked | untranslated
        and re.search(r"[a-z]{2,} [a-z]{2,} [a-z]{2,}", node.value)
    ]
    assert sentences == []
