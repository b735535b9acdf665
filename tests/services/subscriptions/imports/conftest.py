from collections.abc import Iterator

import pytest

from devstack.harness.stack import Owner
from services.subscriptions.imports import import_job
from services.subscriptions.imports.chunks import chunks
from tests.support.imports.importing import ImportRunner, new_addresses
from tests.support.imports.turns import ShortTurn
from tests.support.lists.racing import no_deadlock


@pytest.fixture
def importer(importing: ImportRunner) -> Owner:
    return importing.stack.create_owner()


@pytest.fixture
def list_id(importing: ImportRunner, importer: Owner) -> int:
    return importing.new_list(importer)


@pytest.fixture
def people() -> list[str]:
    """Twelve e-mail addresses of people who don't have an account."""
    return new_addresses(12)


@pytest.fixture
def _require_no_deadlock_in_imports(importing: ImportRunner) -> Iterator[None]:
    with no_deadlock(importing.stack):
        yield


@pytest.fixture
def _shorten_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make each turn of an import job end after five chunks of two rows each."""
    monkeypatch.setattr(chunks, "ROWS_PER_CHUNK", 2)
    monkeypatch.setattr(import_job, "Turn", ShortTurn)
