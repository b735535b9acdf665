"""Tests that the commands in the runbook name only things that exist."""

import re
import shlex
from collections.abc import Iterator

import pytest

from benchmarks.code_metrics.product_modules import PACKAGES
from devstack.supervisor.programs import STOP_STAGES
from tests.support.commands.command_line import require_accepted
from tests.support.deployment import files
from tests.support.documents import markdown
from tests.support.observability.alert_rules import alerts, series
from tests.support.observability.known_metrics import registered

pytestmark = pytest.mark.tier("check")

RUNBOOK = markdown.ROOT / "docs" / "runbook.md"
BLOCK = re.compile(r"^ *```(?:sh|sql)\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
COMPOSE = re.compile(r"docker compose (?:exec|logs|ps|restart|run|up)\b")
LOCAL_LOG = re.compile(r"\.pressroom/logs/([\w-]+)\.log")
LOG_EVENT = re.compile(r"^[a-z]+\.[a-z_]*$")
# The logs of the development stack for servers that aren't Pressroom's programs.
SERVERS = {"postgres", "valkey", "s3"}


def sections() -> dict[str, str]:
    """Map each heading of the runbook to the text below it."""
    _, *parts = re.split(r"^## ", RUNBOOK.read_text(), flags=re.MULTILINE)
    return dict(part.split("\n", 1) for part in parts)


def find_compose_commands() -> Iterator[list[str]]:
    """Return the words of each Compose command in the blocks and in the sentences."""
    text = RUNBOOK.read_text()
    inline_codes = re.findall(r"`([^`]+)`", BLOCK.sub("", text))
    lines = [*"".join(BLOCK.findall(text)).splitlines(), *inline_codes]
    for line in lines:
        command, _, _ = " ".join(line.split()).partition("|")
        if COMPOSE.match(command):
            yield shlex.split(command)


def find_grep_patterns() -> Iterator[str]:
    for pattern in re.findall(r"grep (?:-[Ei]+ )?('[^']*'|\S+)", RUNBOOK.read_text()):
        yield from pattern.strip("'").replace("\\", "").split("|")


@pytest.mark.parametrize(
    "name", [each.name for each in alerts().values() if each.severity != "info"]
)
def test_runbook_section_has_commands_for_compose_and_the_development_stack(name: str) -> None:
    text = sections()[name]
    links = re.findall(r"[Ff]ollow\s+the\s+steps\s+for\s+\[[^\]]+\]\(#(\w+)\)", text)
    if links:
        [text] = [each for title, each in sections().items() if title.lower() == links[0]]
    blocks = BLOCK.findall(text)
    assert blocks
    is_sql = any("SELECT" in each for each in blocks)
    assert is_sql or any("# Compose\n" in each and "# make run\n" in each for each in blocks)


def test_services_in_compose_commands_of_the_runbook_exist() -> None:
    commands = list(find_compose_commands())
    assert len(commands) > 40
    for words in commands:
        verb, *rest = words[2:]
        if verb in {"exec", "run"}:
            rest = [word for word in rest if not word.startswith("--")][:1]
        elif verb in {"logs", "up"}:
            rest = re.sub(r"--(?:since|tail|scale) ", "", " ".join(rest)).split()
            rest = [word.partition("=")[0] for word in rest if not word.startswith("--")]
            rest = [word for word in rest if not re.fullmatch(r"\d+[mh]?", word)]
        assert set(rest) <= files.services().keys(), words


def test_logs_of_the_development_stack_in_the_runbook_exist() -> None:
    names = set(LOCAL_LOG.findall(RUNBOOK.read_text()))
    assert names
    assert names <= {name for stage in STOP_STAGES for name in stage} | SERVERS


def test_pressroom_commands_of_the_development_stack_in_the_runbook_are_valid() -> None:
    lines = re.findall(r"^ *\.venv/bin/(pressroom .*)$", RUNBOOK.read_text(), re.MULTILINE)
    assert len(lines) > 20
    for line in lines:
        require_accepted(shlex.split(line))


def test_log_events_in_the_runbook_exist() -> None:
    code = "".join(
        path.read_text()
        for package in PACKAGES
        for path in markdown.ROOT.glob(f"{package}/**/*.py")
    )
    events = [each for each in find_grep_patterns() if LOG_EVENT.match(each)]
    assert len(set(events)) > 8
    for event in events:
        assert re.search(rf'"{re.escape(event)}', code), event


def test_metrics_in_the_runbook_exist() -> None:
    known = series().keys() | {each.name for each in registered()}
    assert set(re.findall(r"\bpressroom_[a-z0-9_]+", RUNBOOK.read_text())) <= known
