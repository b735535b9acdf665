"""Reads links, code blocks and headings from the Markdown documents."""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[3]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])

_FENCE = re.compile(
    r"^(?P<run><!-- run -->\n)?(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^(?P=indent)```$",
    re.DOTALL | re.MULTILINE,
)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_INLINE = re.compile(r"`([^`\n]+)`")
_HEADING = re.compile(r"^#+ +(.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    language: str
    text: str
    is_run: bool


def name_of(document: Path) -> str:
    return str(document.relative_to(ROOT))


def blocks(document: Path) -> list[Block]:
    return [
        Block(match["language"], match["text"], match["run"] is not None)
        for match in _FENCE.finditer(document.read_text())
    ]


def links(document: Path) -> list[str]:
    return _LINK.findall(_prose(document))


def inline_code(document: Path) -> list[str]:
    return _INLINE.findall(_prose(document))


def anchors(document: Path) -> set[str]:
    """Return the link anchors of all headings: lower case, hyphens for spaces, no punctuation."""
    headings = _HEADING.findall(_prose(document))
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings
    }


def shell_lines(document: Path) -> list[str]:
    """Return the commands in all shell blocks, each with its continuation lines."""
    text = "\n".join(block.text for block in blocks(document) if block.language == "sh")
    return re.sub(r"\\\n\s*", "", text).splitlines()


def _prose(document: Path) -> str:
    return _FENCE.sub("", document.read_text())
