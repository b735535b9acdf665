"""Starts a stack for benchmarks of bulk work, and fills lists with plain SQL as a baseline."""

import io
import itertools
import random
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass

import httpx2
import psutil
import psycopg2
from psycopg2.extensions import connection

from benchmarks.own_stack import own_stack
from core.ids import neighbouring_ids
from devstack.harness.polling import eventually
from devstack.harness.process_memory import measure_memory
from devstack.harness.running import Running
from devstack.harness.stack import Owner, Stack
from services.subscriptions import lists

CHUNK = 10_000
_SAMPLE_EVERY_SECONDS = 0.05
_numbers = itertools.count(1)

Person = tuple[str, str]


@dataclass
class BulkBench:
    stack: Stack
    owner: Owner
    client: httpx2.Client
    plain: connection
    worker: Running

    def new_list(self) -> int:
        slug = f"list-{next(_numbers)}"
        with self.stack.resources.unit_of_work() as uow:
            return lists.create_list(
                uow, account_id=self.owner.account_id, title="A list", slug=slug
            ).id

    def count_members(self, list_id: int) -> int:
        """Return the number of active members of a list."""
        [(count,)] = self.stack.query(
            "SELECT count(*) FROM subscriptions WHERE list_id = %s AND status = 'active'", list_id
        )
        assert isinstance(count, int)
        return count

    def add_plainly(
        self, list_id: int, people: Sequence[Person], by: connection | None = None
    ) -> None:
        """Insert the same member rows as Pressroom, but without Pressroom's business rules.

        Args:
            by: the database connection to use, or ``None`` for the default connection of the
                benchmark.
        """
        plain = by or self.plain
        with plain, plain.cursor() as cursor:
            cursor.execute(_STAGING)
            cursor.execute(_IMPORT, (list_id, self.owner.user_id, f"plain-{next(_numbers)}"))
            [(import_id,)] = cursor.fetchall()
        for start in range(0, len(people), CHUNK):
            part = people[start : start + CHUNK]
            fresh = neighbouring_ids(len(part))
            lines = (f"{i}\t{e}\t{n}\n" for i, (e, n) in zip(fresh, part, strict=True))
            with plain, plain.cursor() as cursor:
                cursor.copy_expert("COPY plain FROM STDIN", io.StringIO("".join(lines)))
                cursor.execute("ANALYZE plain")
                cursor.execute(_PEOPLE)
                cursor.execute(_SUBSCRIPTIONS, (list_id, import_id))

    def add_plainly_by_two(self, list_id: int, people: Sequence[Person]) -> None:
        """Insert the people through two concurrent database connections."""
        halves = (people[::2], people[1::2])
        with (
            closing(psycopg2.connect(self.stack.owner_url)) as first,
            closing(psycopg2.connect(self.stack.owner_url)) as second,
            ThreadPoolExecutor(2) as threads,
        ):
            for _ in threads.map(self.add_plainly, (list_id, list_id), halves, (first, second)):
                pass

    def make_lean_tables(self) -> None:
        with self.plain, self.plain.cursor() as cursor:
            cursor.execute(_LEAN_TABLES)

    def add_leanly(self, people: Sequence[Person]) -> None:
        """Write people and memberships into minimal tables, as fast as Postgres can store them.

        The minimal tables have few columns, and no constraints except NOT NULL, unique constraints
        and foreign keys. The new rows get ascending ids, because appending to an index is fast. The
        inserts don't look up existing rows.
        """
        for start in range(0, len(people), CHUNK):
            part = people[start : start + CHUNK]
            with self.plain, self.plain.cursor() as cursor:
                cursor.execute("SELECT coalesce(max(id), 0) + 1 FROM lean_people")
                [(first,)] = cursor.fetchall()
                lines = (f"{i}\t{e}\t{n}\n" for i, (e, n) in enumerate(part, first))
                cursor.copy_expert("COPY plain FROM STDIN", io.StringIO("".join(lines)))
                cursor.execute(_LEAN_PEOPLE)
                cursor.execute(_LEAN_SUBSCRIPTIONS)

    def count_lean_members(self) -> int:
        [(count,)] = self.stack.query("SELECT count(*) FROM lean_subscriptions")
        assert isinstance(count, int)
        return count

    def import_file(
        self, list_id: int, content: bytes, expected: int, filename: str = "members.csv.gz"
    ) -> None:
        """Import a file, and check the number of added members."""
        reply = self.client.post(
            f"/lists/{list_id}/imports",
            params={"filename": filename},
            content=content,
            headers={"Content-Type": "application/octet-stream", "Prefer": "wait=60"},
        )
        assert reply.is_success, reply.text
        job = reply.json()["data"]

        def ended() -> bool:
            nonlocal job
            job = self.client.get(f"/jobs/{job['id']}").json()["data"]
            return job["status"] not in {"queued", "running"}

        eventually(ended, within=600, what="the import's end")
        assert job["result"]["added"] == expected, job

    @contextmanager
    def measure_peak(self, *, largest_only: bool = False) -> Iterator[list[float]]:
        """Yield a list that contains the worker processes' peak memory so far, in MB (PSS).

        Args:
            largest_only: whether to measure only the largest process and its children. The largest
                process runs the import.
        """
        peak = [0.0]
        stop = threading.Event()

        def watch() -> None:
            while not stop.wait(_SAMPLE_EVERY_SECONDS):
                peak[0] = max(peak[0], self._worker_megabytes(largest_only=largest_only))

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            yield peak
        finally:
            stop.set()
            watcher.join()

    def _worker_megabytes(self, *, largest_only: bool) -> float:
        process = psutil.Process(self.worker.pid)
        if largest_only:
            family = process.children(recursive=True)
            process = max(family, key=lambda each: measure_memory(each.pid), default=process)
        family = [process, *process.children(recursive=True)]
        return sum(measure_memory(each.pid) for each in family) / 1e6


_STAGING = (
    "CREATE TEMP TABLE IF NOT EXISTS plain (id bigint, email text, name text) ON COMMIT DELETE ROWS"
)
_IMPORT = """
    INSERT INTO imports (list_id, user_id, source, object_prefix, size)
    VALUES (%s, %s, 'file', %s, 0) RETURNING id
"""
_PEOPLE = "INSERT INTO users (id, email) SELECT id, email FROM plain ON CONFLICT DO NOTHING"
_SUBSCRIPTIONS = """
    INSERT INTO subscriptions
        (list_id, user_id, status, email, name, source, import_id, imported_at)
    SELECT %s, u.id, 'active', p.email, p.name, 'import', %s, now()
    FROM plain AS p JOIN users AS u ON u.email = p.email
    ON CONFLICT DO NOTHING
"""
_LEAN_TABLES = f"""
    CREATE TABLE IF NOT EXISTS lean_lists (id bigint PRIMARY KEY);
    INSERT INTO lean_lists VALUES (1) ON CONFLICT DO NOTHING;
    CREATE TABLE IF NOT EXISTS lean_people (id bigint PRIMARY KEY, email text NOT NULL UNIQUE);
    CREATE TABLE IF NOT EXISTS lean_subscriptions (
        list_id bigint REFERENCES lean_lists,
        person_id bigint REFERENCES lean_people,
        name text,
        PRIMARY KEY (list_id, person_id)
    );
    {_STAGING}
"""
_LEAN_PEOPLE = "INSERT INTO lean_people SELECT id, email FROM plain ON CONFLICT DO NOTHING"
_LEAN_SUBSCRIPTIONS = "INSERT INTO lean_subscriptions SELECT 1, id, name FROM plain"


def create_people(count: int) -> list[Person]:
    """Return people with e-mail addresses that no earlier call has returned."""
    batch = next(_numbers)
    chance = random.Random(7)
    words = ["ada", "ben", "chloe", "dmitri", "elena", "farid", "grace", "hugo", "ines", "jonas"]
    people = []
    for number in range(count):
        first = chance.choice(words)
        last = chance.choice(words)
        address = f"{first}.{last}.{batch}.{number}@example.com"
        people.append((address, f"{first.title()} {last.title()}"))
    return people


@contextmanager
def bulk_bench() -> Iterator[BulkBench]:
    with own_stack("bulk") as stack:
        # Raise the member quota, because every round fills a new list of the same owner.
        stack.environment["PRESSROOM_QUOTA_PAID"] = "members=1000000000"
        stack.start_api(PRESSROOM_LOG_LEVEL="warning")
        worker = stack.start_worker("bulk", "export", concurrency=1)
        stack.start_worker("mail", "maintenance", concurrency=2)
        owner = stack.create_owner()
        url = stack.owner_url
        with closing(psycopg2.connect(url)) as plain, stack.client(owner.key) as client:
            client.timeout = httpx2.Timeout(600)
            yield BulkBench(stack, owner, client, plain, worker)
