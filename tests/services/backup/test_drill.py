import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from functools import partial
from secrets import token_hex
from typing import Any

import httpx2
import pytest

from core import clock
from devstack.harness.polling import eventually
from devstack.harness.stack import Owner, Stack
from services.accounts import accounts
from services.attachments import strays
from services.attachments.strays import StrayKind
from services.credits import ledger, verify
from tests.services.backup.conftest import Saved, saved
from tests.support.commands.running import ended_process
from tests.support.images.pictures import encoded
from tests.support.imports.importing import Importing, csv_of
from tests.support.people.erasure import erase
from tests.support.stack.load import repeated

ENTRIES = (
    "SELECT seq, delta, balance_after, hash FROM credit_entries WHERE user_id = %s ORDER BY seq"
)

pytestmark = pytest.mark.tier("processes")


@dataclass
class Load:
    """Callers of the API, and what they were told that it is done."""

    stack: Stack
    owner: Owner
    charges: list[str] = field(default_factory=list)
    images: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    @contextmanager
    def going_on(self) -> Iterator[None]:
        with self.stack.client(self.owner.key) as client:
            charge, upload = partial(self._charge, client), partial(self._upload, client)
            with repeated(charge, pause=0.005), repeated(upload):
                yield
        assert self.failures == []

    def _charge(self, client: httpx2.Client) -> None:
        source = token_hex(8)
        body = {"amount_credit": 0.01, "source_id": source}
        self._note(client.post("/auxilia/credits/consume", json=body), self.charges, source)

    def _upload(self, client: httpx2.Client) -> None:
        reply = client.post("/attachments", files={"file": ("a.png", encoded("PNG"))})
        self._note(reply, self.images, reply.json().get("data", {}).get("filename", ""))

    def _note(self, reply: httpx2.Response, done: list[str], what: str) -> None:
        if reply.status_code == httpx2.codes.OK:
            done.append(what)
        else:
            self.failures.append(reply.text)


def command(target: Saved, *words: str) -> Any:
    def done() -> subprocess.CompletedProcess[str] | None:
        environment = {**target.stack.environment, **target.environment}
        ended = ended_process(environment, *words, "--json")
        # The worker's own look whether it is time takes a moment.
        return None if "(maintenance.running)" in ended.stderr else ended

    ended = eventually(done, what="the end of another run")
    assert isinstance(ended, subprocess.CompletedProcess)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def new_person(stack: Stack, list_id: int) -> tuple[int, str, str]:
    """The id, the address and an API key of a person who has joined the list."""
    person, importing = stack.new_owner(), Importing(stack)
    [(user_id,)] = stack.query("SELECT user_id FROM lists WHERE id = %s", list_id)
    owner = Owner(int(str(user_id)), "", "")
    assert importing.bring(owner, list_id, csv_of([[person.email, ""]])).added == 1
    return person.user_id, person.email, person.key


@pytest.fixture(scope="module", autouse=True)
def _opened(shop: Stack) -> None:
    """With an API, and the workers that an upload and an erasure need."""
    with shop.starting_together():
        shop.start_api()
        shop.start_worker("media")
        shop.start_worker("maintenance")


def test_a_backup_under_load_is_restored_and_who_left_since_stays_away(
    backups: Saved, open_own: Callable[..., Stack]
) -> None:
    shop = backups.stack
    owner = shop.new_owner()
    ledger.grant_credits(shop.resources.database, owner.user_id, Decimal(1000), source_id="start")
    list_id = Importing(shop).new_list(owner)
    stayer, leaver, quiet, erased = (new_person(shop, list_id) for _ in range(4))
    load = Load(shop, owner)
    with load.going_on():
        while len(load.images) < 3 or len(load.charges) < 20:
            time.sleep(0.05)
        charges, images = list(load.charges), list(load.images)
        made = command(backups, "backup", "create")
    # All of this is later than the backup.
    later = shop.new_owner()
    with shop.client(leaver[2]) as client:
        assert client.delete(f"/subscriptions/{list_id}").json()["data"] == 1
    with shop.client(quiet[2]) as client:
        reply = client.put(f"/subscriptions/{list_id}/email", json={"enabled": False})
        assert reply.json()["data"] == 1
    erase(shop.resources, erased[1])
    command(backups, "maintenance", "backup.journal")

    target = saved(open_own("restored", migrated=False), backups.folder)
    done = command(target, "backup", "restore", made["id"])
    assert (done["opt_outs_replayed"], done["erasures_replayed"]) == (2, 1)
    restored = target.stack
    _require_the_same_money(shop, restored, owner, charges)
    _require_the_same_images(shop, restored, images)
    records = restored.query(
        "SELECT user_id, (status, email_enabled)::text FROM subscriptions WHERE list_id = %s",
        list_id,
    )
    assert set(records) == {
        (stayer[0], "(active,t)"),
        (leaver[0], "(unsubscribed,t)"),
        (quiet[0], "(active,f)"),
        (erased[0], "(active,t)"),
    }
    # The erasure's job comes as soon as there is a worker; until then the person is erased already.
    with restored.resources.unit_of_work() as uow:
        person = accounts.get(uow, erased[0])
        assert person.erased_at is not None
    for table in ("users", "account_mails", "mailed_links"):
        holding = f"SELECT 1 FROM {table} AS t WHERE t::text LIKE %s"
        assert not restored.query(holding, f"%{erased[1]}%")
    assert not restored.query("SELECT 1 FROM users WHERE id = %s", later.user_id)


def _require_the_same_money(shop: Stack, restored: Stack, owner: Owner, charges: list[str]) -> None:
    before, after = shop.query(ENTRIES, owner.user_id), restored.query(ENTRIES, owner.user_id)
    assert len(after) > len(charges)
    assert after == before[: len(after)]
    sources = "SELECT source_id FROM credit_entries WHERE user_id = %s"
    assert {source for (source,) in restored.query(sources, owner.user_id)} >= set(charges)
    assert verify.verify_ledger(restored.resources, full=True).faults == []


def _require_the_same_images(shop: Stack, restored: Stack, images: list[str]) -> None:
    assert images
    for name in images:
        key = f"media/{name}"
        assert restored.resources.objects.get(key) == shop.resources.objects.get(key)
    found = strays.find_strays(restored.resources, now=clock.now() + timedelta(hours=2))
    # Images that were uploaded after the dump may have come along.
    assert {each.kind for each in found} <= {StrayKind.OBJECT_WITHOUT_ROW}


def test_verify_restores_aside_and_throws_all_away(backups: Saved) -> None:
    owner = backups.stack.new_owner()
    with backups.stack.client(owner.key) as client:
        client.post("/attachments", files={"file": ("a.png", encoded("PNG"))}).raise_for_status()
    made = backups.create()
    databases = backups.stack.query("SELECT datname FROM pg_database ORDER BY 1")
    keys = backups.stack.stored()
    done = command(backups, "backup", "verify")
    assert (done["id"], done["faults"]) == (made.id, [])
    assert done["objects"] == made.objects > 0
    assert done["rows"]["attachments"] > 0
    assert backups.stack.query("SELECT datname FROM pg_database ORDER BY 1") == databases
    assert set(backups.stack.stored()) == set(keys)


def test_verify_as_a_role_that_makes_no_databases_names_the_setting(backups: Saved) -> None:
    backups.create()
    environment = {**backups.stack.environment, **backups.environment}
    environment["PRESSROOM_MIGRATION_DATABASE_URL"] = ""
    done = ended_process(environment, "backup", "verify")
    assert (done.returncode, done.stdout) == (1, "")
    assert (
        "permission denied to create database: set PRESSROOM_MIGRATION_DATABASE_URL" in done.stderr
    )
