"""Tests of the documentation site that ``make site`` builds."""

import os
import re
import subprocess
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from api.openapi.document import TAGS
from api.openapi.plain_reference import name_chapter
from tests.support.documents.markdown import ROOT
from tests.support.observability.alert_rules import alerts

pytestmark = pytest.mark.tier("check")

_LOADING_ATTRIBUTES = {"link": "href", "script": "src", "img": "src", "iframe": "src"}
_CSS_URL = re.compile(r"""(?:url\(|@import\s+)["']?((?:https?:)?//[^"')\s]+)""")
_SITE_URL = "https://docs.example"
_LLMS_LINK = re.compile(r"\]\(([^)]+)\)")


class _LoadedUrls(HTMLParser):
    """Collects the URLs of all files that a browser loads together with a page."""

    def __init__(self) -> None:
        super().__init__()
        self.urls: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        url = dict(attrs).get(_LOADING_ATTRIBUTES.get(tag, ""))
        if url:
            self.urls.append(url)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("documentation") / "site"
    completed = subprocess.run(
        ["make", "site", f"SITE={folder}"],
        cwd=ROOT,
        env={**os.environ, "PRESSROOM_DOCS_URL": f"{_SITE_URL}/"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr
    return folder


def documents() -> Iterator[Path]:
    for pattern in ("*.md", "docs/*.md", "docs/decisions/*.md"):
        yield from (path.relative_to(ROOT) for path in ROOT.glob(pattern))


def test_site_has_a_page_and_a_markdown_file_of_every_document(site: Path) -> None:
    missing = {
        path
        for path in documents()
        if not (site / path.with_suffix(".html")).is_file()
        or (site / "_sources" / path).read_text() != (ROOT / path).read_text()
    }
    assert missing == set()


def test_llms_txt_has_an_absolute_link_to_the_markdown_file_of_every_document(site: Path) -> None:
    links = _LLMS_LINK.findall((site / "llms.txt").read_text())
    assert [link for link in links if not link.startswith(f"{_SITE_URL}/")] == []
    paths = [link.removeprefix(f"{_SITE_URL}/") for link in links]
    assert {f"_sources/{path}" for path in documents()} <= set(paths)
    assert {path for path in paths if not (site / path).is_file()} == set()


def test_llms_txt_lists_the_best_pages_first_and_decisions_as_optional(site: Path) -> None:
    text = (site / "llms.txt").read_text()
    assert _LLMS_LINK.findall(text)[0] == f"{_SITE_URL}/_sources/docs/start.md"
    guides, _, others = text.partition("## Optional\n")
    assert "docs/decisions/" in others
    assert "docs/decisions/" not in guides
    lines = [line for line in guides.splitlines() if line.startswith("- ")]
    assert [line for line in lines if "): " not in line] == []


def test_site_has_a_markdown_page_for_each_chapter_of_the_api_reference(site: Path) -> None:
    _, _, reference = (site / "llms.txt").read_text().partition("## API reference\n")
    links = _LLMS_LINK.findall(reference.partition("\n## ")[0])
    assert links == [f"{_SITE_URL}/api/{name_chapter(tag)}.md" for tag in TAGS]
    pages = {tag: (site / "api" / f"{name_chapter(tag)}.md").read_text() for tag in TAGS}
    assert [text for tag, text in pages.items() if not text.startswith(f"# {tag}\n")] == []
    assert "\n## POST /lists\n" in pages["Lists"]


def test_long_commands_wrap_on_the_site(site: Path) -> None:
    page = (site / "docs" / "quickstart.html").read_text()
    assert 'class="highlight-sh' in page
    [style] = re.findall(r'href="([^"?]*site\.css)', page)
    rules = (site / "docs" / style).read_text()
    assert re.search(r"\.highlight-sh pre \{[^}]*white-space: pre-wrap", rules)


def test_first_page_of_the_site_leads_to_the_documentation(site: Path) -> None:
    [target] = re.findall(r'url=([^"]+)"', (site / "index.html").read_text())
    assert "Pressroom" in (site / target).read_text()


def test_site_has_the_page_and_the_section_to_which_each_alert_links(site: Path) -> None:
    for rule in alerts().values():
        [link] = re.findall(r"\}\}/(docs/[^{]+)\{\{", rule.runbook_url)
        page, _, anchor = link.partition("#")
        assert f'id="{anchor}"' in (site / page).read_text(), link


def test_search_index_of_the_site_knows_the_words_of_its_pages(site: Path) -> None:
    assert "searchindex.js" in (site / "search.html").read_text()
    index = (site / "searchindex.js").read_text()
    stems = {"backup", "unsubscrib", "webhook"}
    assert {stem for stem in stems if f'"{stem}"' not in index} == set()


def test_site_loads_nothing_from_other_servers(site: Path) -> None:
    loaded: set[str] = set()
    for page in site.rglob("*.html"):
        parser = _LoadedUrls()
        parser.feed(page.read_text())
        loaded.update(parser.urls)
    for style in site.rglob("*.css"):
        loaded.update(_CSS_URL.findall(style.read_text()))
    assert {url for url in loaded if re.match(r"(https?:)?//", url)} == set()
    assert loaded
