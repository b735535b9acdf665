"""Makes a table that is there partitioned by ranges of its ids, whatever its size.

The table itself becomes the first partition. No row is moved or read under a lock: a rule that the
rows were checked against beside running code says that they belong there.

The migrations that use this have no downgrade. It would copy all rows under a lock, and has no use:
the release before works on partitioned tables.
"""

import sqlalchemy as sa
from alembic import op

from storage.migrations import online

# Less than the second after which Postgres ends one side of a deadlock, perhaps a caller's.
_WAIT = "SET LOCAL lock_timeout = '500ms'"

_NOT_CHECKED = sa.text(
    "SELECT conname FROM pg_constraint WHERE conrelid = to_regclass(:table) AND NOT convalidated"
)
_BOUND = sa.text(
    r"SELECT substring(pg_get_constraintdef(oid) FROM '\d+') FROM pg_constraint"
    " WHERE conrelid = to_regclass(:table) AND conname = :name"
)
_INDEXES = sa.text(
    "SELECT relname, pg_get_indexdef(indexrelid) AS definition FROM pg_index"
    " JOIN pg_class ON pg_class.oid = indexrelid"
    " WHERE indrelid = to_regclass(:table) AND indisvalid AND NOT indisprimary"
)
# The primary key before the foreign ones.
_KEYS = sa.text(
    "SELECT conname, contype, pg_get_constraintdef(oid) AS definition FROM pg_constraint"
    " WHERE conrelid = to_regclass(:table) AND contype IN ('p', 'f') ORDER BY contype DESC"
)
_REFERENCED = sa.text(
    "SELECT DISTINCT confrelid::regclass::text AS name FROM pg_constraint"
    " WHERE conrelid = to_regclass(:table) AND contype = 'f' ORDER BY name"
)
_TRIGGERS = sa.text(
    "SELECT tgname, pg_get_triggerdef(oid) AS definition FROM pg_trigger"
    " WHERE tgrelid = to_regclass(:table) AND NOT tgisinternal"
)
_RIGHTS = sa.text(
    "SELECT privilege_type, CASE grantee WHEN 0 THEN 'PUBLIC' ELSE grantee::regrole::text END"
    " AS grantee FROM pg_class, aclexplode(relacl) WHERE pg_class.oid = to_regclass(:table)"
    " AND grantee <> relowner"
)


def bound(table: str, key: str, numbers: str, *, ids_each: int) -> None:
    """Give all rows of now, and those of a long time to come, to the first partition.

    Beside running code, as the steps of ``online``. ``numbers`` is the sequence of the ids.
    """
    last = op.get_bind().scalar(sa.text(f"SELECT last_value FROM {numbers}"))
    # At least half of a partition's ids are left until callers are refused one; `partition` comes
    # long before.
    end = (int(last or 0) + ids_each // 2) // ids_each + 1
    for name in op.get_bind().scalars(_NOT_CHECKED, {"table": table}).all():
        online.validate_constraint(table, name)
    online.add_constraint(table, _rule(table), f"CHECK ({key} < {end * ids_each})")


def partition(table: str, key: str) -> None:
    """Put a partitioned table in the place of this one, and this one into it, with all it has.

    Everyone waits who uses the table, for some milliseconds.
    """
    connection, of_table = op.get_bind(), {"table": table}
    first = f"{table}_p0"
    connection.exec_driver_sql(_WAIT)
    # ATTACH takes this lock on the tables of foreign keys. Callers use those tables first: one that
    # did would wait here for this table, and this migration for that caller, each time anew.
    for name in [*connection.scalars(_REFERENCED, of_table), table]:
        connection.exec_driver_sql(f"LOCK TABLE {name} IN ACCESS EXCLUSIVE MODE")
    end = connection.scalar(_BOUND, {"table": table, "name": _rule(table)})
    found = {
        what: connection.execute(query, of_table).all()
        for what, query in (("keys", _KEYS), ("indexes", _INDEXES), ("triggers", _TRIGGERS))
    }
    rights = connection.execute(_RIGHTS, of_table).all()
    numbers = _take_numbers(connection, table, key)
    connection.exec_driver_sql(f"ALTER TABLE {table} RENAME TO {first}")
    for name, *_ in [*found["indexes"], *(each for each in found["keys"] if each[1] == "p")]:
        connection.exec_driver_sql(f"ALTER INDEX {name} RENAME TO {name}_p0")
    connection.exec_driver_sql(
        f"CREATE TABLE {table} (LIKE {first} INCLUDING ALL EXCLUDING INDEXES)"
        f" PARTITION BY RANGE ({key})"
    )
    connection.exec_driver_sql(f"ALTER TABLE {table} DROP CONSTRAINT {_rule(table)}")
    for statement in numbers:
        connection.exec_driver_sql(statement)
    for name, _, definition in found["keys"]:
        connection.exec_driver_sql(f"ALTER TABLE {table} ADD CONSTRAINT {name} {definition}")
    for _, definition in found["indexes"]:
        connection.exec_driver_sql(definition)
    for name, definition in found["triggers"]:
        connection.exec_driver_sql(f"DROP TRIGGER {name} ON {first}")
        connection.exec_driver_sql(definition)
    for privilege, role in rights:
        connection.exec_driver_sql(f"GRANT {privilege} ON {table} TO {role}")
    connection.exec_driver_sql(
        f"ALTER TABLE {table} ATTACH PARTITION {first} FOR VALUES FROM (MINVALUE) TO ({end})"
    )
    connection.exec_driver_sql(f"ALTER TABLE {first} DROP CONSTRAINT {_rule(table)}")
    connection.exec_driver_sql(
        f"INSERT INTO partitions (name, parent, from_id, to_id) VALUES ('{first}', '{table}', 0, {end})"
    )


def _rule(table: str) -> str:
    return f"ck_{table}_in_first_partition"


def _take_numbers(connection: sa.Connection, table: str, key: str) -> list[str]:
    """Take the sequence of the ids away; the statements by which the new table goes on with it."""
    find = sa.text("SELECT pg_get_serial_sequence(:table, :key)")
    sequence = connection.scalar(find, {"table": table, "key": key})
    if sequence is None:
        return []
    query = sa.text(f"SELECT last_value, is_called FROM {sequence}")
    last, is_called = connection.execute(query).one()
    connection.exec_driver_sql(f"ALTER TABLE {table} ALTER {key} DROP IDENTITY")
    return [
        (
            f"ALTER TABLE {table} ALTER {key} ADD GENERATED BY DEFAULT AS IDENTITY"
            f" (SEQUENCE NAME {sequence})"
        ),
        f"SELECT setval('{sequence}', {last}, {is_called})",
    ]
