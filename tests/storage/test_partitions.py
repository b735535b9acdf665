"""Tables whose old rows are dropped by the partition."""

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta

import psycopg2
import psycopg2.extensions
import pytest
from psycopg2 import errors
from sqlalchemy.exc import OperationalError

from services.privacy import partitions
from tests.stack import Stack

JOB = (
    "INSERT INTO jobs (kind, lane, status, finished_at) VALUES ('probe', 'bulk', 'succeeded', {at})"
    " RETURNING id"
)
EVENT = (
    "INSERT INTO subscription_events (list_id, user_id, action, actor, via)"
    " VALUES (1, 1, 'requested', 'stranger', 'challenge') RETURNING id"
)
CHANGE = (
    "WITH task AS (INSERT INTO imports"
    " (list_id, user_id, source, object_prefix, size, status, finished_at)"
    " VALUES (1, 1, 'file', gen_random_uuid(), 1, 'succeeded', now()) RETURNING id)"
    " INSERT INTO import_changes (import_id, subscription_id, activated, applied_at,"
    " status_before, type_before, type_after, updated_at_before)"
    " SELECT id, 1, true, now(), 'pending', 'free', 'free', now() FROM task RETURNING import_id"
)
BULK_CHANGE = (
    "WITH act AS (INSERT INTO bulk_acts (list_id, user_id, filter, action, status, finished_at)"
    " VALUES (1, 1, '{}', 'remove', 'succeeded', now()) RETURNING id)"
    " INSERT INTO bulk_changes (bulk_id, subscription_id, applied_at, updated_at_before,"
    " status_before, type_before)"
    " SELECT id, 1, now(), now(), 'active', 'free' FROM act RETURNING bulk_id"
)
INSERTS = {
    "jobs": JOB.format(at="now()"),
    "subscription_events": EVENT,
    "import_changes": CHANGE,
    "feed_events": "INSERT INTO feed_events (user_id, type) VALUES (1, 'key.created') RETURNING id",
    "bulk_changes": BULK_CHANGE,
}
KEYS = dict.fromkeys(INSERTS, "id") | {"import_changes": "import_id", "bulk_changes": "bulk_id"}
SEQUENCES = {
    "jobs": "jobs_id_seq",
    "subscription_events": "subscription_events_id_seq",
    "import_changes": "imports_id_seq",
    "feed_events": "feed_events_id_seq",
    "bulk_changes": "bulk_acts_id_seq",
}
# More than a partition is written to, and less than any row is kept for.
A_TURN = timedelta(days=181)


@pytest.fixture(scope="module")
def stack(idle_stack: Stack) -> Stack:
    idle_stack.query("INSERT INTO users (id, email) VALUES (1, 'owner@example.com')")
    letter = "INSERT INTO lists (id, user_id, slug, title) VALUES (1, 1, 'letter', 'Letter')"
    idle_stack.query(letter)
    return idle_stack


def pass_time(stack: Stack, table: str, time: timedelta) -> None:
    """Make all that happened to this table and its rows older."""
    stack.query(
        "UPDATE partitions SET made_at = made_at - %s, closed_at = closed_at - %s"
        " WHERE parent = %s",
        time,
        time,
        table,
    )
    if table == "jobs":
        stack.query("UPDATE jobs SET finished_at = finished_at - %s", time)
    elif table in {"import_changes", "bulk_changes"}:
        acts = "imports" if table == "import_changes" else "bulk_acts"
        stack.query(f"UPDATE {acts} SET finished_at = finished_at - %s", time)


def added(stack: Stack, table: str) -> tuple[int, str]:
    """The id of a new row, and the partition that has it."""
    [(row_id,)] = stack.query(INSERTS[table])
    assert isinstance(row_id, int)
    return row_id, part_of(stack, table, row_id)


def part_of(stack: Stack, table: str, row_id: int) -> str:
    query = f"SELECT tableoid::regclass::text FROM {table} WHERE {KEYS[table]} = %s"
    [(name,)] = stack.query(query, row_id)
    return str(name)


def parts(stack: Stack, table: str) -> list[str]:
    query = "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = %s::regclass"
    return sorted(str(name) for (name,) in stack.query(query, table))


@contextmanager
def application(stack: Stack) -> Iterator[psycopg2.extensions.cursor]:
    """What runs with the rights of our processes, each statement by itself."""
    url = stack.settings().database_url.get_secret_value().replace("+psycopg2", "")
    with closing(psycopg2.connect(url)) as connection:
        connection.autocommit = True
        with connection.cursor() as cursor:
            yield cursor


@pytest.mark.parametrize("table", INSERTS)
def test_rows_go_to_the_next_partition_after_a_time_and_old_ones_are_dropped(
    stack: Stack, table: str
) -> None:
    old, first = added(stack, table)
    partitions.keep(stack.resources)
    young, same = added(stack, table)
    assert first == same

    pass_time(stack, table, A_TURN)
    if table != "subscription_events":  # else the time is up for what is in it
        stack.query("UPDATE jobs SET finished_at = now()")
        stack.query("UPDATE imports SET finished_at = now()")
        stack.query("UPDATE bulk_acts SET finished_at = now()")
    partitions.keep(stack.resources)
    later, second = added(stack, table)
    assert second != first
    assert later > young
    assert {part_of(stack, table, each) for each in (old, young)} == {first}

    pass_time(stack, table, partitions.kept_times(stack.settings())[table] - timedelta(minutes=1))
    partitions.keep(stack.resources)
    assert first in parts(stack, table)
    assert added(stack, table)[1] != first

    pass_time(stack, table, timedelta(minutes=2))
    partitions.keep(stack.resources)
    assert first not in parts(stack, table)
    left = stack.query(f"SELECT {KEYS[table]} FROM {table} WHERE {KEYS[table]} <= %s", later)
    assert left == [(later,)]


@pytest.mark.parametrize("table", INSERTS)
def test_a_partition_is_written_to_for_as_long_as_the_registry_of_retention_says(
    stack: Stack, table: str
) -> None:
    _, part = added(stack, table)
    stack.query(
        "UPDATE partitions SET closed_at = now() WHERE parent = %s AND name <> %s", table, part
    )
    stack.query("UPDATE partitions SET made_at = now() WHERE parent = %s", table)
    pass_time(stack, table, partitions.TURNS[table] - timedelta(minutes=1))
    partitions.keep(stack.resources)
    assert added(stack, table)[1] == part
    pass_time(stack, table, timedelta(minutes=2))
    partitions.keep(stack.resources)
    assert added(stack, table)[1] != part


def test_a_job_that_has_not_ended_or_ended_lately_keeps_its_partition(stack: Stack) -> None:
    kept = partitions.kept_times(stack.settings())["jobs"] + timedelta(days=1)
    job_id, part = added(stack, "jobs")
    statement = "UPDATE jobs SET status = %s, finished_at = {} WHERE id = %s"
    stack.query(statement.format("NULL"), "queued", job_id)
    pass_time(stack, "jobs", A_TURN)
    partitions.keep(stack.resources)
    pass_time(stack, "jobs", kept)
    partitions.keep(stack.resources)
    assert part_of(stack, "jobs", job_id) == part
    stack.query(statement.format("now()"), "failed", job_id)
    partitions.keep(stack.resources)
    assert part_of(stack, "jobs", job_id) == part
    stack.query("UPDATE jobs SET finished_at = now() - %s WHERE id = %s", kept, job_id)
    partitions.keep(stack.resources)
    assert part not in parts(stack, "jobs")


@pytest.mark.parametrize(
    ("acts", "table"), [("imports", "import_changes"), ("bulk_acts", "bulk_changes")]
)
def test_an_act_that_goes_on_keeps_the_partition_of_its_changes(
    stack: Stack, acts: str, table: str
) -> None:
    act_id, part = added(stack, table)
    stack.query(f"UPDATE {acts} SET finished_at = NULL WHERE id = %s", act_id)
    for _ in range(2):
        pass_time(stack, table, A_TURN)
        partitions.keep(stack.resources)
    assert part_of(stack, table, act_id) == part
    stack.query(f"UPDATE {acts} SET finished_at = now() - %s WHERE id = %s", A_TURN, act_id)
    partitions.keep(stack.resources)
    assert part not in parts(stack, table)


@pytest.mark.parametrize("table", INSERTS)
def test_rows_have_a_place_however_many_there_are_and_however_long_upkeep_rested(
    stack: Stack, table: str
) -> None:
    _, part = added(stack, table)
    [(end,)] = stack.query("SELECT to_id FROM partitions WHERE name = %s", part)
    assert isinstance(end, int)
    pass_time(stack, table, timedelta(days=3650))
    assert added(stack, table)[1] == part
    # Half full, at once after the partition was begun.
    stack.query("UPDATE partitions SET made_at = now(), closed_at = now() WHERE parent = %s", table)
    stack.query("UPDATE partitions SET closed_at = NULL WHERE name = %s", part)
    stack.query(f"SELECT setval('{SEQUENCES[table]}', %s)", end - 2)
    partitions.keep(stack.resources)
    assert added(stack, table) == (end - 1, part)
    [crossing, following] = [added(stack, table) for _ in range(2)]
    assert crossing[0] == end
    assert crossing[1] == following[1] != part
    partitions.keep(stack.resources)
    assert added(stack, table)[1] == crossing[1]
    [(is_closed,)] = stack.query(
        "SELECT closed_at > now() - interval '1 minute' FROM partitions WHERE name = %s", part
    )
    assert is_closed


def test_a_new_partition_is_like_the_others(stack: Stack) -> None:
    """Rules, indexes with our names, rights, what autovacuum is told: partitions inherit none."""

    def shape(part: str) -> list[str]:
        suffix = "_" + part.rpartition("_")[2]
        found = stack.query(
            "SELECT pg_get_indexdef(indexrelid) FROM pg_index WHERE indrelid = %s::regclass"
            " UNION ALL SELECT conname || pg_get_constraintdef(oid) || convalidated"
            " FROM pg_constraint WHERE conrelid = %s::regclass"
            " UNION ALL SELECT reloptions::text FROM pg_class WHERE oid = %s::regclass"
            " UNION ALL SELECT relacl::text FROM pg_class WHERE oid = %s::regclass"
            " ORDER BY 1",
            *(part,) * 4,
        )
        return [str(each).replace(suffix, "") for (each,) in found]

    added(stack, "jobs")
    before = parts(stack, "jobs")
    pass_time(stack, "jobs", A_TURN)
    stack.query("UPDATE jobs SET finished_at = now()")
    partitions.keep(stack.resources)
    [new] = set(parts(stack, "jobs")) - set(before)
    assert shape(new) == shape(before[-1])
    assert "scale_factor" in str(shape(new))
    named = "SELECT indexrelid::regclass::text FROM pg_index WHERE indrelid = %s::regclass"
    names = [str(name) for (name,) in stack.query(named, new)]
    assert all(name.startswith(("ix_", "pk_")) for name in names), names


def test_the_application_may_drop_nothing_within_its_time_and_no_other_table(stack: Stack) -> None:
    refused = {
        "SELECT drop_partition('jobs', interval '6 days')": errors.RestrictViolation,
        "SELECT drop_partition('jobs', NULL)": errors.RestrictViolation,
        "SELECT drop_partition('subscription_events', interval '90 days')": (
            errors.RestrictViolation
        ),
        "SELECT drop_partition('feed_events', interval '29 days')": errors.RestrictViolation,
        "SELECT drop_partition('users', interval '9 years')": errors.InvalidParameterValue,
        "SELECT make_partition('users')": errors.InvalidParameterValue,
        "SELECT make_partition(NULL)": errors.InvalidParameterValue,
        "SELECT turn_partition('jobs; DROP TABLE jobs')": errors.InvalidParameterValue,
        "SELECT setval('jobs_id_seq', 1)": errors.InsufficientPrivilege,
        "UPDATE partitions SET closed_at = now() - interval '9 years'": (
            errors.InsufficientPrivilege
        ),
        f"DROP TABLE {parts(stack, 'jobs')[0]}": errors.InsufficientPrivilege,
        # What is undone would leave the ids where no partition is.
        f"{INSERTS['jobs']}; SELECT turn_partition('jobs')": errors.ActiveSqlTransaction,
    }
    added(stack, "jobs")
    with application(stack) as cursor:
        for statement, error in refused.items():
            with pytest.raises(error):
                cursor.execute(statement)
        for function in ("make", "turn"):  # again and again, before its time
            cursor.execute(f"SELECT {function}_partition('import_changes')")
            cursor.execute(f"SELECT {function}_partition('import_changes')")
            assert cursor.fetchall() == [(None,)]


def test_callers_do_not_wait_behind_a_partition_that_can_not_be_dropped_yet(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction that reads for a minute holds up the drop, which holds up all others."""
    monkeypatch.setattr(partitions, "_TRIES", 1)
    for table in ("jobs", "subscription_events"):
        _, part = added(stack, table)
        for _ in range(1 if table == "jobs" else 2):
            pass_time(stack, table, A_TURN)
            partitions.keep(stack.resources)
    _, part = added(stack, "subscription_events")
    pass_time(stack, "subscription_events", A_TURN)
    pass_time(stack, "jobs", A_TURN)
    before = parts(stack, "jobs")
    with closing(psycopg2.connect(stack.owner_url)) as reading, reading.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM jobs")
        began = time.monotonic()
        with pytest.raises(OperationalError, match="lock timeout"):
            partitions.keep(stack.resources)
        assert time.monotonic() - began < 10  # the reader would go on for ever
        added(stack, "jobs")
        # The next table had its turn all the same.
        assert added(stack, "subscription_events")[1] != part
    assert set(before) <= set(parts(stack, "jobs"))
    partitions.keep(stack.resources)
    assert not set(before[:-1]) & set(parts(stack, "jobs"))


def test_a_job_is_looked_for_in_its_partition_alone(stack: Stack) -> None:
    job_id, part = added(stack, "jobs")
    pass_time(stack, "jobs", A_TURN)
    stack.query("UPDATE jobs SET finished_at = now()")
    partitions.keep(stack.resources)
    assert len(parts(stack, "jobs")) > 1
    for statement in (
        f"SELECT * FROM jobs WHERE id = {job_id} AND user_id = 1 FOR UPDATE",
        f"UPDATE jobs SET progress_done = 1 WHERE id = {job_id} AND attempt = 1",
        f"DELETE FROM jobs WHERE id = {job_id}",
    ):
        plan = " ".join(str(line) for (line,) in stack.query(f"EXPLAIN {statement}"))
        assert {name for name in parts(stack, "jobs") if name in plan} == {part}
