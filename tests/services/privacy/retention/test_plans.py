import pytest
from sqlalchemy import text

from devstack.harness.stack import Stack
from services.privacy.retention import RULES, select_expired
from storage.unit_of_work import UnitOfWork
from tests.support.documents.retention_table import read_retention_table

# Selects all foreign keys, and whether the referring table has an index on the columns of the
# foreign key. When a row is deleted, Postgres uses this index to search for rows that refer to the
# deleted row. The index may be a partial index that omits the rows whose foreign key is NULL.
FOREIGN_KEYS_QUERY = """
SELECT c.conname, c.confrelid::regclass::text, c.confdeltype::text, EXISTS (
    SELECT FROM pg_index i
    WHERE i.indrelid = c.conrelid AND i.indisvalid
    AND (SELECT array_agg(column_ ORDER BY column_) FROM unnest(
        (i.indkey::int2[])[0:cardinality(c.conkey) - 1]) AS column_)
        = (SELECT array_agg(column_ ORDER BY column_) FROM unnest(c.conkey) AS column_)
    AND (i.indpred IS NULL OR pg_get_expr(i.indpred, i.indrelid) = (
        SELECT '(' || attname || ' IS NOT NULL)' FROM pg_attribute
        WHERE attrelid = c.conrelid AND attnum = c.conkey[1] AND cardinality(c.conkey) = 1))
)
FROM pg_constraint c
WHERE c.contype = 'f' AND c.connamespace = 'public'::regnamespace
"""
NO_ACTION = "a"


def test_every_foreign_key_to_deletable_rows_has_an_index(retention_stack: Stack) -> None:
    permanent_tables = {
        name for name, (period, _) in read_retention_table().items() if period.startswith("forever")
    }
    assert permanent_tables
    foreign_keys = retention_stack.query(FOREIGN_KEYS_QUERY)
    assert len(foreign_keys) > 30
    unindexed_keys = {
        name
        for name, parent, action, has_index in foreign_keys
        if not has_index and (action != NO_ACTION or parent not in permanent_tables)
    }
    assert unindexed_keys == set()


def explain_statement(uow: UnitOfWork, statement: str) -> str:
    # The tables of the test are small, so Postgres would read a whole table instead of an index.
    # Disable all query plans that don't use an index.
    for method in ("seqscan", "bitmapscan", "sort"):
        uow.session.execute(text(f"SET LOCAL enable_{method} = off"))
    return "\n".join(uow.session.connection().exec_driver_sql(f"EXPLAIN {statement}").scalars())


@pytest.mark.parametrize("name", [rule.name for rule in RULES if rule.moment is not None])
def test_retention_purge_finds_expired_rows_by_an_index_without_sorting(
    retention_stack: Stack, name: str
) -> None:
    [rule] = [each for each in RULES if each.name == name]
    with retention_stack.resources.unit_of_work() as uow:
        places, _ = select_expired(rule, rule.age(retention_stack.settings()), limit=10)
        dialect = uow.session.get_bind().dialect
        compiled = places.compile(dialect=dialect, compile_kwargs={"literal_binds": True})
        query_plan = explain_statement(uow, str(compiled))
    table = rule.model.__tablename__
    assert "Sort" not in query_plan, query_plan
    assert f"Seq Scan on {table}" not in query_plan, query_plan
    assert f" on {table}" in query_plan, query_plan
    # If the retention rule has no `oldest_by`, Postgres must use an index condition to find the
    # expired rows, instead of reading the whole index.
    if not rule.oldest_by:
        assert "Index Cond" in query_plan, query_plan
