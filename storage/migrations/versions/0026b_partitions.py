"""Partitions by ids: which there are, and the functions that make, turn and drop them.

Safe under running code: add before you use, stop using before you remove, and never rewrite or
scan a large table under a lock.
"""

import sqlalchemy as sa
from alembic import op

revision = "0026b"
down_revision = "0026"
branch_labels = None
depends_on = None

# A function waits no longer for a lock for which callers queue behind it, and is called again.
_SAFE = "SET search_path = public, pg_temp SET lock_timeout = '200ms'"

# How a table is partitioned: the column and the sequence of its ids, how many ids a partition has,
# and how long rows are kept, whatever upkeep is told. Then the last id that was given (or the first
# one that will be), and whether it is time that ids are those of the next partition.
STATE = """
CREATE FUNCTION partition_state(
    table_name text, OUT key text, OUT numbers text, OUT ids_each bigint,
    OUT kept_at_least interval, OUT last_id bigint, OUT is_due boolean
) LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    turns_after interval;
    is_given boolean;
BEGIN
    SELECT r.key, r.numbers, r.ids_each, r.turns_after, r.kept_at_least
    INTO key, numbers, ids_each, turns_after, kept_at_least
    FROM (VALUES
        ('jobs', 'id', 'jobs_id_seq', 1000000000, interval '15 days', interval '7 days'),
        ('subscription_events', 'id', 'subscription_events_id_seq', 10000000000,
            interval '180 days', interval '1 year'),
        ('import_changes', 'import_id', 'imports_id_seq', 10000000,
            interval '30 days', interval '30 days')
    ) AS r (name, key, numbers, ids_each, turns_after, kept_at_least)
    WHERE r.name = table_name;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the table % has no partitions', table_name
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    -- One at a time makes, turns or drops.
    PERFORM pg_advisory_xact_lock(hashtext('partitions'), hashtext(table_name));
    EXECUTE format('SELECT last_value, is_called FROM %I', numbers) INTO last_id, is_given;
    -- Those that ran full, and one from which a transaction turned that did not end.
    UPDATE partitions SET closed_at = clock_timestamp()
    WHERE parent = table_name AND to_id <= last_id AND closed_at IS NULL;
    SELECT is_given AND coalesce(max(closed_at), min(made_at)) <= now() - turns_after INTO is_due
    FROM partitions WHERE parent = table_name;
END
$$
"""

# Makes the next partition when it is time, and when the current one is half full. Returns its name,
# or nothing.
MAKE = f"""
CREATE FUNCTION make_partition(table_name text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER {_SAFE} AS $$
DECLARE
    state record;
    newest partitions;
    suffix text;
    options text;
    index record;
BEGIN
    SELECT * INTO state FROM partition_state(table_name);
    SELECT * INTO newest FROM partitions WHERE parent = table_name ORDER BY to_id DESC LIMIT 1;
    IF newest.from_id > state.last_id
        OR (NOT state.is_due AND state.last_id < newest.to_id - state.ids_each / 2)
    THEN
        RETURN NULL;
    END IF;
    suffix := '_p' || newest.to_id / state.ids_each;
    EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING ALL EXCLUDING IDENTITY EXCLUDING INDEXES)',
        table_name || suffix, table_name);
    -- A partitioned table has no storage parameters of its own.
    SELECT array_to_string(reloptions, ', ') INTO options
    FROM pg_class WHERE oid = newest.name::regclass;
    IF options <> '' THEN
        EXECUTE format('ALTER TABLE %I SET (%s)', table_name || suffix, options);
    END IF;
    EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%s) TO (%s)',
        table_name, table_name || suffix, newest.to_id, newest.to_id + state.ids_each);
    FOR index IN
        SELECT own.relname AS name, whole.relname || suffix AS fitting FROM pg_index
        JOIN pg_inherits ON inhrelid = indexrelid JOIN pg_class AS own ON own.oid = indexrelid
        JOIN pg_class AS whole ON whole.oid = inhparent
        WHERE indrelid = (table_name || suffix)::regclass
    LOOP
        EXECUTE format('ALTER INDEX %I RENAME TO %I', index.name, index.fitting);
    END LOOP;
    INSERT INTO partitions (name, parent, from_id, to_id)
    VALUES (table_name || suffix, table_name, newest.to_id, newest.to_id + state.ids_each);
    RETURN table_name || suffix;
END
$$
"""

# From now on ids are those of the next partition, if it is time. Returns its name, or nothing. A
# sequence does not go back when a transaction is undone, so the partition must be committed.
TURN = f"""
CREATE FUNCTION turn_partition(table_name text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER {_SAFE} AS $$
DECLARE
    state record;
    following partitions;
BEGIN
    IF pg_current_xact_id_if_assigned() IS NOT NULL THEN
        RAISE EXCEPTION 'partitions are turned in a transaction of their own'
            USING ERRCODE = 'active_sql_transaction';
    END IF;
    SELECT * INTO state FROM partition_state(table_name);
    SELECT * INTO following FROM partitions
    WHERE parent = table_name AND from_id > state.last_id ORDER BY from_id LIMIT 1;
    IF NOT FOUND OR NOT state.is_due THEN
        RETURN NULL;
    END IF;
    PERFORM setval(state.numbers::regclass, following.from_id, false);
    UPDATE partitions SET closed_at = clock_timestamp()
    WHERE parent = table_name AND to_id <= following.from_id AND closed_at IS NULL;
    RETURN following.name;
END
$$
"""

# A row's id was given before its partition was closed, and so it is at least as old. But a job
# changes later, and an import goes on. Callers wait for the second look, so it has to be by an
# index, whatever the statistics say.
OUTLIVED = """
CREATE FUNCTION is_outlived(part partitions, since timestamptz) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = public, pg_temp SET enable_seqscan = off AS $$
DECLARE
    is_used boolean := false;
BEGIN
    IF part.parent = 'jobs' THEN
        EXECUTE format(
            'SELECT EXISTS (SELECT FROM %1$I WHERE status = ''queued'')'
            ' OR EXISTS (SELECT FROM %1$I WHERE status = ''running'')'
            ' OR EXISTS (SELECT FROM %1$I WHERE finished_at >= $1)', part.name
        ) INTO is_used USING since;
    ELSIF part.parent = 'import_changes' THEN
        SELECT EXISTS (
            SELECT FROM imports WHERE id >= part.from_id AND id < part.to_id
                AND (finished_at IS NULL OR finished_at >= since)
        ) INTO is_used;
    END IF;
    RETURN NOT is_used;
END
$$
"""

# Drops the oldest partition that outlived its time. Returns its name, or nothing.
DROP = f"""
CREATE FUNCTION drop_partition(table_name text, kept interval) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER {_SAFE} AS $$
DECLARE
    state record;
    part partitions;
BEGIN
    SELECT * INTO state FROM partition_state(table_name);
    IF kept IS NULL OR kept < state.kept_at_least THEN
        RAISE EXCEPTION 'rows of % are kept for at least %', table_name, state.kept_at_least
            USING ERRCODE = 'restrict_violation';
    END IF;
    FOR part IN
        SELECT * FROM partitions WHERE parent = table_name AND closed_at < now() - kept
        ORDER BY from_id
    LOOP
        CONTINUE WHEN NOT is_outlived(part, now() - kept);
        EXECUTE format('LOCK TABLE ONLY %I IN ACCESS EXCLUSIVE MODE', table_name);
        -- A failed job may just have been started again. That is seen in no time; an import that
        -- ended so long ago can't be, and there are many imports to look at.
        CONTINUE WHEN table_name = 'jobs' AND NOT is_outlived(part, now() - kept);
        EXECUTE format('DROP TABLE %I', part.name);
        DELETE FROM partitions WHERE name = part.name;
        RETURN part.name;
    END LOOP;
    RETURN NULL;
END
$$
"""


def upgrade() -> None:
    op.create_table(
        "partitions",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("parent", sa.String(), nullable=False),
        sa.Column("from_id", sa.BigInteger(), nullable=False),
        sa.Column("to_id", sa.BigInteger(), nullable=False),
        sa.Column(
            "made_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.Column("closed_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_partitions")),
        sa.UniqueConstraint("parent", "from_id", name=op.f("uq_partitions_parent_from_id")),
    )
    for function in (STATE, MAKE, TURN, OUTLIVED, DROP):
        op.execute(sa.text(function.replace(":", r"\:")))
    # A partition of jobs is dropped without a look at each row that names one of its jobs. A
    # record of a request is gone by then, and an import whose undo is not known is undone again.
    op.execute("SET LOCAL lock_timeout = '500ms'")
    op.execute("ALTER TABLE idempotency_records DROP CONSTRAINT fk_idempotency_records_job_id")
    op.execute("ALTER TABLE imports DROP CONSTRAINT fk_imports_undo_job_id")
