"""Joins the code examples in the README of an API client into one script.

Later examples use the variables of earlier examples.
"""

from pathlib import Path

from devstack.harness.stack import Owner, Stack
from tests.support.documents import markdown
from tests.support.images.pictures import photo

# The URL and the API key in the READMEs of the API clients.
_URL = "https://press.example.com"
_KEY = "prk_…"
# The last line that the script prints.
LAST_LINE = "All examples were run."
MAX_LINES = 10


def build_script(readme: Path, language: str, stack: Stack, owner: Owner) -> str:
    """Join the code blocks marked ``<!-- run -->`` in a README into one script."""
    blocks = [each for each in markdown.blocks(readme) if each.is_run]
    assert len(blocks) >= 4
    assert {each.language for each in blocks} == {language}
    assert max(len(each.text.splitlines()) for each in blocks) <= MAX_LINES
    text = "\n".join(each.text for each in blocks)
    assert _URL in text
    assert _KEY in text
    print_function = "print" if language == "python" else "console.log"
    runnable = text.replace(_URL, stack.api_url).replace(_KEY, owner.key)
    return f'{runnable}\n{print_function}("{LAST_LINE}")\n'


def write_files(folder: Path) -> None:
    (folder / "photo.jpg").write_bytes(photo())
    (folder / "members.csv").write_text("email,name\nada@example.com,Ada\nben@example.com,Ben\n")
