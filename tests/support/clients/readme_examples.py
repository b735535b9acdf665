"""The examples of a client's README are one script: a later one uses what an earlier one made."""

from pathlib import Path

from devstack.harness.stack import Owner, Stack
from tests.support.documents import markdown
from tests.support.images.pictures import photo

# As the READMEs have them.
_URL = "https://press.example.com"
_KEY = "prk_…"
# What the script says when it came to its end.
LAST_WORD = "All examples were run."
MAX_LINES = 10


def script(readme: Path, language: str, stack: Stack, owner: Owner) -> str:
    """All blocks of this language that are marked to be run, for this stack and owner."""
    blocks = [each for each in markdown.blocks(readme) if each.is_run]
    assert len(blocks) >= 4
    assert {each.language for each in blocks} == {language}
    assert max(len(each.text.splitlines()) for each in blocks) <= MAX_LINES
    text = "\n".join(each.text for each in blocks)
    assert _URL in text
    assert _KEY in text
    say = "print" if language == "python" else "console.log"
    given = text.replace(_URL, stack.api_url).replace(_KEY, owner.key)
    return f'{given}\n{say}("{LAST_WORD}")\n'


def write_files(folder: Path) -> None:
    """The files that the examples upload."""
    (folder / "photo.jpg").write_bytes(photo())
    (folder / "members.csv").write_text("email,name\nada@example.com,Ada\nben@example.com,Ben\n")
