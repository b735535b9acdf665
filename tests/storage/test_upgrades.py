"""Tests that each release's database can be upgraded to the current schema without losing data.

The folder `releases/` contains a database dump of each release since 1.0.0. The command
`python -m tests.support.stack.make_release` makes a database dump.
"""

import gzip
import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from devstack.harness.embedded_services import Services
from devstack.harness.free_ports import free_port
from devstack.harness.opening import open_stack
from devstack.harness.stack import Stack
from devstack.supervisor.embedded.valkey import DATABASES
from storage.backup_files import postgres_tools
from storage.migrations.run import migrate
from tests.support.commands.running import printed
from tests.support.credits.credits import balance, consume
from tests.support.http.replies import data
from tests.support.security.world import tables
from tests.support.stack.definitions import definitions
from tests.support.stack.make_release import FOLDER
from tests.support.stack.programs import TEST_PROGRAMS
from tests.support.stack.scratch_databases import scratch_database

pytestmark = [pytest.mark.tier("processes"), pytest.mark.usefixtures("postgres_tools_on_path")]


@pytest.fixture(params=sorted(FOLDER.glob("*.json")), ids=lambda path: path.stem)
def release_record(request: pytest.FixtureRequest) -> Path:
    """The JSON file that describes the contents of a release's database dump."""
    return Path(request.param)


@pytest.fixture
def release_stack(services: Services, home: Path, release_record: Path) -> Iterator[Stack]:
    """A test stack without tables, into which the test restores the database of a release."""
    name = f"from-{release_record.stem.replace('.', '-')}"
    with open_stack(
        services, home, name, DATABASES - 3, free_port(), migrated=False, programs=TEST_PROGRAMS
    ) as empty:
        yield empty


def test_database_of_every_release_is_upgraded_without_losing_data(
    release_stack: Stack, release_record: Path
) -> None:
    kept, url = json.loads(release_record.read_text()), SecretStr(release_stack.owner_url)
    dump = gzip.decompress(release_record.with_suffix(".dump.gz").read_bytes())
    postgres_tools.restore(url, [dump])
    before = _rows(release_stack)
    owner = {"PRESSROOM_MIGRATION_DATABASE_URL": release_stack.owner_url}
    assert release_stack.start("migrates", "migrate", environment=owner).process.wait(60) == 0
    after = _rows(release_stack)
    assert [name for name in before if after.get(name, 0) < before[name]] == []
    with scratch_database(release_stack) as fresh:
        migrate(fresh.settings)
        assert _restored(release_stack, url) == _restored(
            release_stack, fresh.settings.database_url
        )
    release_stack.environment |= kept["settings"]
    release_stack.start_api()
    with release_stack.client(kept["api_key"]) as client:
        for path, answer in kept["answers"].items():
            text = json.dumps(answer).replace(kept["api_url"], release_stack.api_url)
            assert _holds(json.loads(text), data(client.get(path))), path
        had = balance(client)
        data(consume(client, "0.125", source_id="upgraded"))
        assert balance(client) == had - Decimal("0.125")
    assert printed(release_stack, "credits", "verify", "--full") == []


def _rows(stack: Stack) -> dict[str, int]:
    each = (f"SELECT '{name}', count(*)::int FROM {name}" for name in tables(stack))
    return dict(stack.query(" UNION ALL ".join(each)))  # type: ignore[arg-type]


def _restored(stack: Stack, database: SecretStr) -> dict[str, set[str]]:
    """The definitions of a copy: Postgres words some otherwise once it has read its own words."""
    with scratch_database(stack) as copy:
        postgres_tools.restore(copy.settings.database_url, postgres_tools.dump(database))
        with copy.engine.connect() as connection:
            return definitions(connection)


def _holds(kept: Any, found: Any) -> bool:
    """Whether an answer has all that was kept of it; fields may have come since."""
    if isinstance(kept, dict):
        return kept.keys() <= found.keys() and all(_holds(kept[key], found[key]) for key in kept)
    if isinstance(kept, list):
        return len(kept) == len(found) and all(map(_holds, kept, found))
    return bool(kept == found)
