"""Writes the files from which the upgrade test restores the database of an earlier release.

A maintainer runs ``python -m tests.support.stack.make_release`` once per release. The program
starts a stack, and fills its database through the API, pages and commands. Then the program writes
two files into ``tests/storage/releases``: a dump of the database by ``pg_dump``, and the API's
responses to an owner. The files contain keys of the stack, which open nothing after the stack is
deleted. The program also writes the checksums of the two files and of all migrations into
``SHA256SUMS``, because a released file must never change.
"""

import gzip
import json
import os
from collections.abc import Iterable
from contextlib import ExitStack
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

from pydantic import SecretStr

from devstack.harness.embedded_services import embedded_services
from devstack.harness.free_ports import free_port
from devstack.harness.opening import open_stack
from devstack.harness.stack import Stack
from devstack.supervisor.environment import build_path
from storage.backup_files import postgres_tools
from tests.support.commands.running import printed
from tests.support.credits.credits import consume, grant
from tests.support.http.replies import data
from tests.support.imports.bulk import imported, sheet
from tests.support.lists.subscribers import a_reader, new_address, new_list, subscribe
from tests.support.people.authenticator import Device, add_app, add_passkey
from tests.support.people.visiting import a_visitor, new_account
from tests.support.security import world as worlds
from tests.support.security.calls import CALLS
from tests.support.security.world import World
from tests.support.stack.cheap_passwords import use_cheap_hashes
from tests.support.stack.programs import TEST_PROGRAMS

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "tests" / "storage" / "releases"
_SUMS = FOLDER / "SHA256SUMS"
_KEYS = ("PRESSROOM_SECRET_KEYS", "PRESSROOM_ENCRYPTION_KEYS")
# Their answers are the same at any later time.
_PATHS = (
    "/lists",
    "/lists/{list_id}/subscriptions",
    "/lists/{list_id}/members/{user_id}",
    "/lists/{list_id}/members/{user_id}/history",
    "/lists/{list_id}/members/{user_id}/consent",
    "/lists/{list_id}/tags",
    "/lists/{list_id}/segments",
    "/fields",
    "/attachments",
    "/webhook-endpoints",
    "/auxilia/credits/balance",
    "/auxilia/credits/ledger",
    "/auxilia/credits/orders/{paid_order_id}",
)


def main() -> None:
    os.environ["PATH"] = build_path()
    use_cheap_hashes()
    with ExitStack() as opened:
        home = Path(opened.enter_context(TemporaryDirectory()))
        services = opened.enter_context(embedded_services(home))
        stack = opened.enter_context(
            open_stack(services, home, "release", 1, free_port(), programs=TEST_PROGRAMS)
        )
        stack.start_sandbox()
        stack.start_api()
        stack.start_worker("media", "bulk", "export", concurrency=1)
        stack.start_worker("request", "photos", "money", "mail", "webhooks", "maintenance")
        world = _fill(stack)
        worlds.settled(stack)
        paths = [path.format(**world.values) for path in _PATHS]
        record = {
            "settings": {name: stack.environment[name] for name in _KEYS},
            "api_url": stack.api_url,
            "api_key": world.owner.key,
            "answers": {path: data(world.client.get(path)) for path in paths},
        }
        dump = b"".join(postgres_tools.dump(SecretStr(stack.owner_url)))
    FOLDER.mkdir(exist_ok=True)
    database, answers = (FOLDER / f"{version('pressroom')}.{kind}" for kind in ("dump.gz", "json"))
    database.write_bytes(gzip.compress(dump, mtime=0))
    answers.write_text(json.dumps(record, indent=1) + "\n")
    migrations = sums_of(ROOT.glob("storage/migrations/versions/[0-9]*"))
    sums = migrations | released_sums() | sums_of([database, answers])
    _SUMS.write_text("".join(f"{sums[name]}  {name}\n" for name in sorted(sums)))


def released_sums() -> dict[str, str]:
    """The SHA-256 of each file that was released, by its path."""
    lines = _SUMS.read_text().splitlines() if _SUMS.exists() else []
    return {name: digest for digest, name in map(str.split, lines)}


def sums_of(files: Iterable[Path]) -> dict[str, str]:
    return {
        file.relative_to(ROOT).as_posix(): sha256(file.read_bytes()).hexdigest() for file in files
    }


def _fill(stack: Stack) -> World:
    """One owner, who is returned, keeps all; another one does everything, deletions too."""
    kept, busy = worlds.build(stack), worlds.build(stack)
    for world in (kept, busy):
        grant(stack, world.owner.user_id, "100.5")
        data(consume(world.client, "0.25", key="charged-only-once"))
    for operation, call in CALLS.items():
        values = busy.values | {"as_whom": "me", "provider": "stockphoto"}
        reply = call.send(busy.client, operation, values)
        assert reply.status_code == call.own, (operation, reply.text)
    _add_readers(kept)
    _add_account(stack)
    printed(stack, "maintenance", "maintenance.fold_counts")
    assert printed(stack, "credits", "verify") == []
    return kept


def _add_readers(world: World) -> None:
    """Consent with words, and by an import; people who wait, who left, and who are erased."""
    stack, client = world.stack, world.client
    words = {"consent_wording": "I want this letter.", "confirm_required": True}
    asked_id = new_list(client, **words)["id"]
    with stack.client() as stranger, a_reader(stack) as stays, a_reader(stack) as leaves:
        waiting, erased = new_address(), new_address()
        for email in (waiting, erased):
            data(subscribe(stranger, asked_id, email))
        list_id = world.values["list_id"]
        stays.joins(list_id)
        leaves.joins(list_id).leaves(list_id)
        reported = stranger.post("/report", params={"trace_id": world.values["trace_id"]})
        assert reported.status_code == 303
    row = ("first." + world.mark + "@example.com", "Ada", "2025-01-02T03:04:05Z", "192.0.2.7")
    header = ("Email", "Name", "Consent at", "Consent IP")
    imported(client, list_id, sheet(header, row), on_existing="update")
    worlds.settled(stack)
    printed(stack, "users", "erase", erased, "--yes")


def _add_account(stack: Stack) -> None:
    """An account with a session and second factors, and a login that failed."""
    email = new_account(stack)
    with a_visitor(stack) as visitor:
        visitor.log_in(email, "not the password")
        visitor.log_in(email)
        add_app(visitor)
        add_passkey(visitor, Device(stack.api_url))


if __name__ == "__main__":
    main()
