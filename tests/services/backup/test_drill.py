"""Tests of the commands `pressroom backup create`, `restore` and `verify` while the API is used."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from functools import partial
from secrets import token_hex

import httpx2
import pytest

from core import clock
from core.ids import PersonId
from devstack.harness.stack import Owner, Stack
from services.accounts import accounts
from services.attachments import strays
from services.attachments.strays import StrayKind
from services.credits import ledger, verify
from tests.support.commands.running import run_command_process
from tests.support.images.pictures import encoded
from tests.support.imports.importing import ImportRunner
from tests.support.people.erasure import erase
from tests.support.stack.backups import Backups, open_backups
from tests.support.stack.load import repeating

ENTRIES_QUERY = (
    "SELECT seq, delta, balance_after, hash FROM credit_entries WHERE user_id = %s ORDER BY seq"
)

pytestmark = pytest.mark.tier("processes")


@dataclass
class Load:
    """Sends requests to the API in the background, and records which ones succeeded."""

    stack: Stack
    owner: Owner
    charges: list[str] = field(default_factory=list)
    images: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    @contextmanager
    def run_in_background(self) -> Iterator[None]:
        with self.stack.client(self.owner.key) as client:
            charge = partial(self._charge, client)
            upload = partial(self._upload, client)
            with repeating(charge, pause=0.005), repeating(upload):
                yield
        assert self.failures == []

    def _charge(self, client: httpx2.Client) -> None:
        source = token_hex(8)
        body = {"amount_credit": 0.01, "source_id": source}
        self._record_response(
            client.post("/auxilia/credits/consume", json=body), self.charges, source
        )

    def _upload(self, client: httpx2.Client) -> None:
        reply = client.post("/attachments", files={"file": ("a.png", encoded("PNG"))})
        self._record_response(reply, self.images, reply.json().get("data", {}).get("filename", ""))

    def _record_response(self, reply: httpx2.Response, names: list[str], name: str) -> None:
        if reply.status_code == httpx2.codes.OK:
            names.append(name)
        else:
            self.failures.append(reply.text)


@pytest.fixture(scope="module", autouse=True)
def _start_programs(backed_up_stack: Stack) -> None:
    """Start an API process, a worker for uploaded media and a worker for maintenance jobs."""
    with backed_up_stack.starting_together():
        backed_up_stack.start_api()
        backed_up_stack.start_worker("media")
        backed_up_stack.start_worker("maintenance")


def test_backup_made_under_load_is_restored_and_later_opt_outs_and_erasures_are_replayed(
    backups: Backups, open_separate_stack: Callable[..., Stack]
) -> None:
    backed_up_stack = backups.stack
    owner = backed_up_stack.create_owner()
    ledger.grant_credits(
        backed_up_stack.resources.database, owner.account_id, Decimal(1000), source_id="start"
    )
    list_id = ImportRunner(backed_up_stack).new_list(owner)
    stayer, leaver, silent_member, erased = (
        ImportRunner(backed_up_stack).import_new_owner(list_id) for _ in range(4)
    )
    load = Load(backed_up_stack, owner)
    with load.run_in_background():
        while len(load.images) < 3 or len(load.charges) < 20:
            time.sleep(0.05)
        charges = list(load.charges)
        images = list(load.images)
        backup = backups.run_command("backup", "create")
    # After the backup, create an owner, opt out two members, and erase a person.
    later_owner = backed_up_stack.create_owner()
    with backed_up_stack.client(leaver.key) as client:
        assert client.delete(f"/subscriptions/{list_id}").json()["data"] == 1
    with backed_up_stack.client(silent_member.key) as client:
        reply = client.put(f"/subscriptions/{list_id}/email", json={"enabled": False})
        assert reply.json()["data"] == 1
    erase(backed_up_stack.resources, erased.email)
    backups.run_command("maintenance", "backup.journal")

    target = open_backups(open_separate_stack("restored", migrated=False), backups.folder)
    result = target.run_command("backup", "restore", backup["id"])
    assert (result["opt_outs_replayed"], result["erasures_replayed"]) == (2, 1)
    restored = target.stack
    _require_the_same_money(backed_up_stack, restored, owner, charges)
    _require_the_same_images(backed_up_stack, restored, images)
    records = restored.query(
        "SELECT user_id, (status, email_enabled)::text FROM subscriptions WHERE list_id = %s",
        list_id,
    )
    assert set(records) == {
        (stayer.user_id, "(active,t)"),
        (leaver.user_id, "(unsubscribed,t)"),
        (silent_member.user_id, "(active,f)"),
        (erased.user_id, "(active,t)"),
    }
    # The restore itself marks the person as erased. A worker completes the erasure later.
    with restored.resources.unit_of_work() as uow:
        person = accounts.get_user(uow, PersonId(erased.user_id))
        assert person.erased_at is not None
    for table in ("users", "account_mails", "mailed_links"):
        query = f"SELECT 1 FROM {table} AS t WHERE t::text LIKE %s"
        assert not restored.query(query, f"%{erased.email}%")
    assert not restored.query("SELECT 1 FROM users WHERE id = %s", later_owner.user_id)


def _require_the_same_money(
    backed_up_stack: Stack, restored: Stack, owner: Owner, charges: list[str]
) -> None:
    before = backed_up_stack.query(ENTRIES_QUERY, owner.user_id)
    after = restored.query(ENTRIES_QUERY, owner.user_id)
    assert len(after) > len(charges)
    assert after == before[: len(after)]
    source_query = "SELECT source_id FROM credit_entries WHERE user_id = %s"
    assert {source for (source,) in restored.query(source_query, owner.user_id)} >= set(charges)
    assert verify.verify_ledger(restored.resources, full=True).faults == []


def _require_the_same_images(backed_up_stack: Stack, restored: Stack, images: list[str]) -> None:
    assert images
    for name in images:
        key = f"media/{name}"
        assert restored.resources.objects.get(key) == backed_up_stack.resources.objects.get(key)
    stray_objects = strays.find_strays(restored.resources, now=clock.now() + timedelta(hours=2))
    # The backup may contain images without database rows, because such images were uploaded after
    # the database dump.
    assert {each.kind for each in stray_objects} <= {StrayKind.OBJECT_WITHOUT_ROW}


def test_backup_verify_restores_into_temporary_database_and_leaves_nothing_behind(
    backups: Backups,
) -> None:
    owner = backups.stack.create_owner()
    with backups.stack.client(owner.key) as client:
        client.post("/attachments", files={"file": ("a.png", encoded("PNG"))}).raise_for_status()
    backup = backups.create()
    databases = backups.stack.query("SELECT datname FROM pg_database ORDER BY 1")
    keys = backups.stack.stored()
    result = backups.run_command("backup", "verify")
    assert (result["id"], result["faults"]) == (backup.id, [])
    assert result["objects"] == backup.objects > 0
    assert result["rows"]["attachments"] > 0
    assert backups.stack.query("SELECT datname FROM pg_database ORDER BY 1") == databases
    assert set(backups.stack.stored()) == set(keys)


def test_backup_verify_without_permission_to_create_databases_names_the_setting(
    backups: Backups,
) -> None:
    backups.create()
    environment = {**backups.stack.environment, **backups.environment}
    environment["PRESSROOM_MIGRATION_DATABASE_URL"] = ""
    process = run_command_process(environment, "backup", "verify")
    assert (process.returncode, process.stdout) == (1, "")
    assert (
        "permission denied to create database. Set PRESSROOM_MIGRATION_DATABASE_URL"
        in process.stderr
    )
