"""Reads the definitions of all database objects, so that tests can compare two databases."""

from sqlalchemy import Connection, text

# Selects the functions in the schema `public`, except those that a Postgres extension created.
_FUNCTIONS = """
FROM pg_proc WHERE pronamespace = 'public'::regnamespace
    AND NOT EXISTS (SELECT FROM pg_depend WHERE objid = pg_proc.oid AND deptype = 'e')
"""
_STATEMENTS = {
    "columns": """
        SELECT concat_ws(' ', attrelid::regclass, attname, format_type(atttypid, atttypmod),
            attcollation::regcollation, attnotnull, attidentity, attgenerated,
            pg_get_expr(adbin, adrelid))
        FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid
            LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
        WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'
            AND attnum > 0 AND NOT attisdropped
    """,
    "constraints": """
        SELECT concat_ws(' ', conrelid::regclass, conname, pg_get_constraintdef(oid))
        FROM pg_constraint WHERE connamespace = 'public'::regnamespace
    """,
    "indexes": """
        SELECT concat_ws(' ', pg_get_indexdef(indexrelid), indisvalid)
        FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid
        WHERE relnamespace = 'public'::regnamespace
    """,
    "sequences": """
        SELECT concat_ws(' ', seqrelid::regclass, to_jsonb(pg_sequence) - 'seqrelid')
        FROM pg_sequence
    """,
    "functions": f"SELECT pg_get_functiondef(oid) {_FUNCTIONS}",
    "triggers": """
        SELECT concat_ws(' ', pg_get_triggerdef(oid), tgenabled)
        FROM pg_trigger WHERE NOT tgisinternal
    """,
    "storage": """
        SELECT concat_ws(' ', oid::regclass, option) FROM pg_class, unnest(reloptions) AS option
        WHERE relnamespace = 'public'::regnamespace
    """,
}


def definitions(connection: Connection) -> dict[str, set[str]]:
    """Map each kind of database object, such as `indexes`, to the definitions of these objects.

    Two tables whose columns differ only in their order have the same definition.
    """
    return {kind: set(connection.scalars(text(sql))) for kind, sql in _STATEMENTS.items()}
