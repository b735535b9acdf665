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
from tests.support.commands.running import run_json_command
from tests.support.credits.credits import consume, grant
from tests.support.http.replies import data
from tests.support.imports.bulk import build_csv, import_members_file
from tests.support.lists.subscribers import new_address, new_list, new_reader, subscribe
from tests.support.people.authenticator import Device, add_app, add_passkey
from tests.support.people.visiting import new_account, new_visitor
from tests.support.security import world as worlds
from tests.support.security.calls import CALLS
from tests.support.security.world import World
from tests.support.stack.cheap_passwords import use_cheap_hashes
from tests.support.stack.programs import TEST_PROGRAMS

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "tests" / "storage" / "releases"
_CHECKSUM_FILE = FOLDER / "SHA256SUMS"
_KEY_SETTINGS = ("PRESSROOM_SECRET_KEYS", "PRESSROOM_ENCRYPTION_KEYS")
# The API paths whose responses ``make_release`` saves. After an upgrade to a later release, each
# path must still return the saved response.
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
        worlds.await_jobs(stack)
        paths = [path.format(**world.values) for path in _PATHS]
        record = {
            "settings": {name: stack.environment[name] for name in _KEY_SETTINGS},
            "api_url": stack.api_url,
            "api_key": world.owner.key,
            "answers": {path: data(world.client.get(path)) for path in paths},
        }
        dump = b"".join(postgres_tools.dump(SecretStr(stack.owner_url)))
    FOLDER.mkdir(exist_ok=True)
    database, answers = (FOLDER / f"{version('pressroom')}.{kind}" for kind in ("dump.gz", "json"))
    database.write_bytes(gzip.compress(dump, mtime=0))
    answers.write_text(json.dumps(record, indent=1) + "\n")
    migrations = compute_checksums(ROOT.glob("storage/migrations/versions/[0-9]*"))
    sums = migrations | read_checksums() | compute_checksums([database, answers])
    _CHECKSUM_FILE.write_text("".join(f"{sums[name]}  {name}\n" for name in sorted(sums)))


def read_checksums() -> dict[str, str]:
    """Map the path of each file that must never change to the SHA-256 checksum of the file."""
    lines = _CHECKSUM_FILE.read_text().splitlines() if _CHECKSUM_FILE.exists() else []
    return {name: digest for digest, name in map(str.split, lines)}


def compute_checksums(files: Iterable[Path]) -> dict[str, str]:
    return {
        file.relative_to(ROOT).as_posix(): sha256(file.read_bytes()).hexdigest() for file in files
    }


def _fill(stack: Stack) -> World:
    """Create the data of two owners, and return the first owner's data."""
    complete_world = worlds.build(stack)
    changed_world = worlds.build(stack)
    for world in (complete_world, changed_world):
        grant(stack, world.owner.user_id, "100.5")
        data(consume(world.client, "0.25", key="charged-only-once"))
    for operation, call in CALLS.items():
        values = changed_world.values | {"as_whom": "me", "provider": "stockphoto"}
        reply = call.send(changed_world.client, operation, values)
        assert reply.status_code == call.own, (operation, reply.text)
    _add_readers(complete_world)
    _add_account(stack)
    run_json_command(stack, "maintenance", "maintenance.fold_counts")
    assert run_json_command(stack, "credits", "verify") == []
    return complete_world


def _add_readers(world: World) -> None:
    """Add people to lists. Some haven't confirmed, have unsubscribed or are erased."""
    stack, client = world.stack, world.client
    fields = {"consent_wording": "I want this letter.", "confirm_required": True}
    confirmed_list_id = new_list(client, **fields)["id"]
    with (
        stack.client() as stranger,
        new_reader(stack) as member,
        new_reader(stack) as former_member,
    ):
        pending_email = new_address()
        erased_email = new_address()
        for email in (pending_email, erased_email):
            data(subscribe(stranger, confirmed_list_id, email))
        list_id = world.values["list_id"]
        member.joins(list_id)
        former_member.joins(list_id).leaves(list_id)
        reported = stranger.post("/report", params={"trace_id": world.values["trace_id"]})
        assert reported.status_code == 303
    row = ("first." + world.mark + "@example.com", "Ada", "2025-01-02T03:04:05Z", "192.0.2.7")
    header = ("Email", "Name", "Consent at", "Consent IP")
    import_members_file(client, list_id, build_csv(header, row), on_existing="update")
    worlds.await_jobs(stack)
    run_json_command(stack, "users", "erase", erased_email, "--yes")


def _add_account(stack: Stack) -> None:
    """Add an account with a session and second factors, and a failed login."""
    email = new_account(stack)
    with new_visitor(stack) as visitor:
        visitor.log_in(email, "not the password")
        visitor.log_in(email)
        add_app(visitor)
        add_passkey(visitor, Device(stack.api_url))


if __name__ == "__main__":
    main()
