"""Configures Sphinx, which builds the documentation site from the Markdown files."""

import os
import posixpath
import re
from importlib import metadata
from pathlib import Path
from typing import Any

from api.openapi.document import TAGS
from api.openapi.plain_reference import name_chapter, write_pages
from cli.openapi_document import build_document

project = "Pressroom"
release = metadata.version("pressroom")
html_title = f"Pressroom {release}"

# Paths are relative to the root of the repository, because the documents link to files outside
# ``docs``.
root_doc = "docs/site/index"
include_patterns = [
    "CHANGELOG.md",
    "CODE_OF_CONDUCT.md",
    "CONTRIBUTING.md",
    "README.md",
    "SECURITY.md",
    "clients/*/README.md",
    "docs/*.md",
    "docs/decisions/*.md",
    "docs/site/index.md",
    "tests/*/README.md",
]
extensions = ["myst_parser", "sphinx_copybutton", "sphinx_llms_txt"]
# Headings down to this level are link targets. Sphinx warns of links to unknown targets.
myst_heading_anchors = 4
# The examples of HTTP messages are shortened by "…", which the highlighter of HTTP doesn't accept.
suppress_warnings = ["misc.highlighting_failure"]

html_theme = "furo"
# The Markdown file of each page, which llms.txt links to.
html_copy_source = True
html_sourcelink_suffix = ""
html_static_path = ["site.css"]
html_css_files = ["site.css"]
llms_txt_file = False
_SUMMARY = (
    "Pressroom is the back end of a newsletter platform: an HTTP API with a console for mailing "
    "lists, members, images, generated texts and credits."
)
# The URL of the site. Without it, the links in llms.txt are relative.
_SITE_URL = os.environ.get("PRESSROOM_DOCS_URL", "").rstrip("/")
# The folder of the API reference, with a Markdown page per chapter.
_REFERENCE_FOLDER = "api"
_ROW = re.compile(r"^\| \[[^]]+\]\(([^)]+)\) \| (.+) \|$", re.MULTILINE)


def setup(app: Any) -> None:
    app.connect("build-finished", _write_index)


def _write_index(app: Any, _: Exception | None) -> None:
    """Write llms.txt with the pages in the order of docs/README.md, the API reference, and then all
    other pages.
    """
    base = f"{_SITE_URL}/" if _SITE_URL else ""
    overview = Path(app.srcdir, "docs", "README.md").read_text()
    lines = [f"# Pressroom\n\n> {_SUMMARY}"]
    listed = {root_doc}
    for section in overview.split("\n## ")[1:]:
        rows = _ROW.findall(section)
        lines += [f"\n## {section.partition(chr(10))[0]}\n"] if rows else []
        for link, sentence in rows:
            name = posixpath.normpath(f"docs/{link}")
            listed.add(name.removesuffix(".md"))
            lines.append(f"- [{name}]({base}_sources/{name}): {sentence}")
    lines += ["\n## API reference\n", *_write_reference(app, base)]
    lines.append("\n## Optional\n")
    for name in sorted(app.env.found_docs - listed):
        lines.append(f"- [{app.env.titles[name].astext()}]({base}_sources/{name}.md)")
    Path(app.outdir, "llms.txt").write_text("\n".join(lines) + "\n")


def _write_reference(app: Any, base: str) -> list[str]:
    """Write the pages that an installation serves as /docs/<chapter>.md, and return their links."""
    folder = Path(app.outdir, _REFERENCE_FOLDER)
    folder.mkdir()
    for chapter, page in write_pages(build_document()).items():
        (folder / f"{chapter}.md").write_text(page)
    return [
        f"- [{name}]({base}{_REFERENCE_FOLDER}/{name_chapter(name)}.md): {tag.description}"
        for name, tag in TAGS.items()
    ]
