import tracemalloc
from decimal import Decimal
from typing import Any, cast

import pytest

from core.errors import DomainError
from core.ids import AccountId, PersonId
from services.access.caller import Caller
from services.credits import ledger
from storage.database import Database

MAX_MEMORY_BYTES = 2_000_000


@pytest.mark.parametrize(
    "meta",
    [
        {"a": [Decimal("1e308")] * 100_000},
        {"a": {f"k{number}": Decimal("1e308") for number in range(10_000)}},
        {"a": [["x" * 10_000] * 10] * 100},
    ],
)
def test_oversized_credit_meta_is_rejected_without_serialising_all_of_it(
    meta: dict[str, Any],
) -> None:
    # The call is refused before it uses the database.
    database = cast("Database", None)
    caller = Caller(AccountId(1), PersonId(1), frozenset(), unrestricted=True)
    tracemalloc.start()
    try:
        with pytest.raises(DomainError, match="8 KB"):
            ledger.consume_credits(
                database, caller, amount=Decimal(1), source_id="m", meta=meta, key=None
            )
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < MAX_MEMORY_BYTES
