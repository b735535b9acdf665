"""A backup of a filled database and bucket, beside `pg_dump` and a plain copy of the same."""

import itertools
import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.measure import Finding, alternate, full_size, median_and_spread, seconds_of
from devstack.supervisor.home.environment import path_of_programs
from devstack.supervisor.processes.ports import PortPicker
from services.backup import restoring, verifying
from tests.embedded import Services, embedded_services
from tests.services.backup.conftest import Saved, saved
from tests.services.backup.test_pruning import settle
from tests.stack import Stack, open_stack

MEMBERS = 2_000_000 if full_size() else 200_000
OBJECTS = 20_000 if full_size() else 1_000
OBJECT_BYTES = 60_000
ROUNDS = 3
MOST_TIMES = 2.0
_AT_ONCE = 4
_PEOPLE = (
    "INSERT INTO users (id, email) SELECT n, 'reader' || n || '@example.com'"
    " FROM generate_series(1, %s) AS n"
)
_MEMBERS = (
    "INSERT INTO subscriptions (list_id, user_id, status, source, name, email)"
    " SELECT %s, id, 'active', 'import', 'Reader ' || id, email FROM users WHERE id <= %s"
)


def run() -> list[Finding]:
    os.environ["PATH"] = path_of_programs()
    with TemporaryDirectory(prefix="pressroom-bench-") as directory:
        home = Path(directory)
        port = PortPicker(home / "ports.json").pick("api")
        with (
            embedded_services(home) as services,
            open_stack(services, home, "backups", 1, port) as stack,
        ):
            _fill(stack)
            return _compare(services, stack, home)


def _fill(stack: Stack) -> None:
    owner = stack.new_owner()
    stack.query(_PEOPLE, MEMBERS)
    [(list_id,)] = stack.query(
        "INSERT INTO lists (id, user_id, slug, title) VALUES (1, %s, 'all', 'All') RETURNING id",
        owner.user_id,
    )
    stack.query(_MEMBERS, list_id, MEMBERS)
    stack.query("ANALYZE")

    def put(number: int) -> None:
        body = os.urandom(OBJECT_BYTES)
        stack.resources.objects.put(f"exports/{number:08}", body, "application/octet-stream")

    with ThreadPoolExecutor(_AT_ONCE) as threads:
        list(threads.map(put, range(OBJECTS)))


def _compare(services: Services, stack: Stack, home: Path) -> list[Finding]:
    rounds = itertools.count()

    def fresh() -> Saved:
        return saved(stack, home / f"backup{next(rounds)}")

    def create() -> float:
        target = fresh()
        taken = seconds_of(target.create)
        shutil.rmtree(target.folder)
        return taken

    pairs = alternate(
        create, lambda: _plain_copy(stack, home / f"plain{next(rounds)}"), rounds=ROUNDS
    )
    ratio, spread = median_and_spread([mine / plain for mine, plain in pairs])
    kept = fresh()
    made = kept.create()
    settle(kept)
    again = seconds_of(kept.create)
    verify = seconds_of(lambda: verifying.verify(kept.resources, kept.place, made))
    with open_stack(services, home, "target", 2, 0, migrated=False) as empty:
        target = saved(empty, kept.folder)
        restore = seconds_of(lambda: restoring.restore(target.resources, target.place, made))
    details = {
        "members": MEMBERS,
        "objects": OBJECTS,
        "object_mb": round(OBJECTS * OBJECT_BYTES / 1e6),
        "dump_mb": round(made.database_bytes / 1e6, 1),
        "create_s": round(median_and_spread([mine for mine, _ in pairs])[0], 1),
        "plain_s": round(median_and_spread([plain for _, plain in pairs])[0], 1),
        "again_s": round(again, 1),
        "verify_s": round(verify, 1),
        "restore_s": round(restore, 1),
    }
    name = f"backups: {MEMBERS:,} members"
    return [Finding(name, ratio, "×", "≤ 2 ×", ratio <= MOST_TIMES, spread, details)]


def _plain_copy(stack: Stack, folder: Path) -> float:
    """The same dump into a file, and the same objects into files, neither encrypted nor flushed."""
    folder.mkdir()

    def copy(key: str) -> None:
        (folder / key.replace("/", "-")).write_bytes(stack.resources.objects.get(key))

    def everything() -> None:
        words = ["pg_dump", "--format=custom", "--compress=1", f"--dbname={stack.owner_url}"]
        subprocess.run([*words, f"--file={folder / 'dump'}"], check=True)
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            list(threads.map(copy, [each.key for each in stack.resources.objects.stored()]))

    taken = seconds_of(everything)
    shutil.rmtree(folder)
    return taken
