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
from tests.support.commands.running import run_json_command
from tests.support.credits.credits import balance, consume
from tests.support.http.replies import data
from tests.support.security.world import list_tables
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
    record = json.loads(release_record.read_text())
    url = SecretStr(release_stack.owner_url)
    dump = gzip.decompress(release_record.with_suffix(".dump.gz").read_bytes())
    postgres_tools.restore(url, [dump])
    rows_before = _count_rows(release_stack)
    environment = {"PRESSROOM_MIGRATION_DATABASE_URL": release_stack.owner_url}
    migration = release_stack.start("migrates", "migrate", environment=environment)
    assert migration.process.wait(60) == 0
    rows_after = _count_rows(release_stack)
    assert [name for name in rows_before if rows_after.get(name, 0) < rows_before[name]] == []
    with scratch_database(release_stack) as fresh:
        migrate(fresh.settings)
        assert _restored_definitions(release_stack, url) == _restored_definitions(
            release_stack, fresh.settings.database_url
        )
    release_stack.environment |= record["settings"]
    release_stack.start_api()
    with release_stack.client(record["api_key"]) as client:
        for path, answer in record["answers"].items():
            text = json.dumps(answer).replace(record["api_url"], release_stack.api_url)
            assert _contains(json.loads(text), data(client.get(path))), path
        balance_before = balance(client)
        data(consume(client, "0.125", source_id="upgraded"))
        assert balance(client) == balance_before - Decimal("0.125")
    assert run_json_command(release_stack, "credits", "verify", "--full") == []


def _count_rows(stack: Stack) -> dict[str, int]:
    """Return the number of rows per table."""
    queries = (f"SELECT '{name}', count(*)::int FROM {name}" for name in list_tables(stack))
    return dict(stack.query(" UNION ALL ".join(queries)))  # type: ignore[arg-type]


def _restored_definitions(stack: Stack, database: SecretStr) -> dict[str, set[str]]:
    """Copy a database with a dump, and return the schema definitions of the copy.

    Postgres rewrites some definitions when it restores a dump. Therefore, compare the definitions
    of a restored database only with the definitions of another restored database.
    """
    with scratch_database(stack) as copy:
        postgres_tools.restore(copy.settings.database_url, postgres_tools.dump(database))
        with copy.engine.connect() as connection:
            return definitions(connection)


def _contains(recorded: Any, actual: Any) -> bool:
    """Return whether a response contains all fields that an older release's response contained."""
    if isinstance(recorded, dict):
        return recorded.keys() <= actual.keys() and all(
            _contains(recorded[key], actual[key]) for key in recorded
        )
    if isinstance(recorded, list):
        return len(recorded) == len(actual) and all(map(_contains, recorded, actual))
    return bool(recorded == actual)
