"""Contains sample posts with handwritten summaries and tags."""

from dataclasses import dataclass
from pathlib import Path

from services.composer.text.post import Post

_FOLDER = Path(__file__).parent
LANGUAGES = {
    "en": "English",
    "de": "German",
    "fr": "French",
    "es": "Spanish",
    "ru": "Russian",
    "zh": "Chinese",
}


@dataclass(frozen=True)
class Sample:
    name: str
    language: str
    post: Post
    summary: str
    tags: tuple[str, ...]


def read_samples() -> list[Sample]:
    files = sorted(path for path in _FOLDER.glob("??-*") if path.suffix in {".md", ".html"})
    return [_read_sample(path) for path in files]


def _read_sample(path: Path) -> Sample:
    head, _, content = path.read_text(encoding="utf-8").partition("\n---\n")
    fields = dict(line.split(": ", 1) for line in head.splitlines())
    tags = tuple(tag.strip() for tag in fields["tags"].split(","))
    post = Post(fields["title"], content)
    return Sample(path.stem, path.stem[:2], post, fields["summary"], tags)
