"""Tests of the journal, from which a restore repeats the opt-outs and erasures since the backup."""

from collections.abc import Callable
from secrets import token_hex

import orjson
import pytest
from pydantic import SecretStr

from core import clock
from core.errors import TransientError
from core.ids import PersonId
from devstack.harness.free_ports import free_port
from devstack.harness.stack import Stack
from integrations.senders.port import SenderProof, SenderProvider
from models import OptOutKind
from services.accounts import accounts
from services.backup import creating, journal, manifests
from services.backup.journal import ReplayResult
from services.senders import applying, intake
from services.senders.intake import StoredSender
from services.senders.posted_bodies import PostedBody
from services.subscriptions import lists
from services.subscriptions.members import address_opt_outs, unsubscribe
from services.subscriptions.members.address_opt_outs import ReportedAddress
from services.subscriptions.members.changes import Actor, ActorKind, Via
from tests.support.imports.importing import ImportRunner
from tests.support.people.erasure import erase
from tests.support.senders.posting import body_of, delivery_for, report
from tests.support.stack.backups import Backups, open_backups

pytestmark = pytest.mark.stack

PENDING_QUERY = "SELECT kind, user_id, list_id FROM departures ORDER BY id"


def unsubscribe_user(
    stack: Stack,
    list_id: int,
    user_id: int,
    action: Callable[..., object] = unsubscribe.unsubscribe_member,
) -> None:
    actor = Actor(ActorKind.USER, Via.LOGIN, user_id)
    with stack.resources.unit_of_work() as uow:
        action(uow, lists.get_list(uow, list_id), accounts.get_user(uow, PersonId(user_id)), actor)


def read_journal(backups: Backups) -> list[dict[str, object]]:
    return [
        row
        for name in sorted(backups.files("journal"))
        for row in orjson.loads(backups.place.get(name))
    ]


@pytest.fixture
def journaled_list_id(backed_up_stack: Stack) -> int:
    """The id of a new list on a stack where no opt-out or erasure waits for the journal."""
    backed_up_stack.query("DELETE FROM departures")
    backed_up_stack.query("UPDATE address_opt_outs SET is_journaled = true")
    return ImportRunner(backed_up_stack).new_list(backed_up_stack.create_owner())


def test_backup_journal_records_each_opt_out_and_erasure_exactly_once(
    backups: Backups, journaled_list_id: int
) -> None:
    backed_up_stack = backups.stack
    member = ImportRunner(backed_up_stack).import_new_owner(journaled_list_id)
    unsubscribe_user(backed_up_stack, journaled_list_id, member.user_id)
    # Insert many opt-outs with one statement, as an import does. The addresses in these opt-outs
    # belong to no user.
    backed_up_stack.query(
        "INSERT INTO opt_outs (list_id, address_hmac, kind, source)"
        " SELECT %s, sha256(n::text::bytea), 'email', 'import' FROM generate_series(1, 7000) AS n",
        journaled_list_id,
    )
    erase(backed_up_stack.resources, member.email)
    assert journal.write_journal(backups.resources) == 7002
    rows = read_journal(backups)
    assert [row["kind"] for row in rows] == ["list", *["email"] * 7000, "erased"]
    assert (rows[0]["user_id"], rows[0]["list_id"]) == (member.user_id, journaled_list_id)
    assert len(str(rows[0]["address_hmac"])) == 64
    assert (rows[-1]["user_id"], rows[-1]["list_id"]) == (member.user_id, None)
    assert backed_up_stack.query(PENDING_QUERY) == []
    assert journal.write_journal(backups.resources) == 0
    assert len(backups.files("journal")) == 2


def test_opt_outs_wait_in_the_database_while_the_backup_storage_is_unreachable(
    backups: Backups, journaled_list_id: int
) -> None:
    backed_up_stack = backups.stack
    member = ImportRunner(backed_up_stack).import_new_owner(journaled_list_id)
    unsubscribe_user(backed_up_stack, journaled_list_id, member.user_id)
    unreachable_url = SecretStr(f"http://key:secret@127.0.0.1:{free_port()}/bucket")
    unreachable = open_backups(backed_up_stack, backups.folder, backup_url=unreachable_url)
    with pytest.raises(TransientError):
        journal.write_journal(unreachable.resources)
    assert backed_up_stack.query(PENDING_QUERY) == [("list", member.user_id, journaled_list_id)]
    assert journal.write_journal(backups.resources) == 1


def test_no_journal_or_backup_is_written_when_backups_are_disabled(
    backed_up_stack: Stack, journaled_list_id: int
) -> None:
    member = ImportRunner(backed_up_stack).import_new_owner(journaled_list_id)
    unsubscribe_user(backed_up_stack, journaled_list_id, member.user_id)
    assert journal.write_journal(backed_up_stack.resources) is None
    assert creating.create_backup_if_due(backed_up_stack.resources, clock.now()) is None
    assert backed_up_stack.query(PENDING_QUERY) == [("list", member.user_id, journaled_list_id)]


def test_backup_journal_replay_is_idempotent(backups: Backups, journaled_list_id: int) -> None:
    """The test reverts an opt-out and an erasure, as the restore of an older backup would."""
    backed_up_stack = backups.stack
    began_at = clock.now()
    leaver = ImportRunner(backed_up_stack).import_new_owner(journaled_list_id)
    erased = ImportRunner(backed_up_stack).import_new_owner(journaled_list_id)
    own_list_id = ImportRunner(backed_up_stack).new_list(erased)
    unsubscribe_user(backed_up_stack, journaled_list_id, leaver.user_id)
    backed_up_stack.query("UPDATE lists SET archived_at = now() WHERE id = %s", own_list_id)
    erase(backed_up_stack.resources, erased.email)
    journal.write_journal(backups.resources)
    unsubscribe_user(backed_up_stack, journaled_list_id, leaver.user_id, unsubscribe.undo_leave)
    backed_up_stack.query("DELETE FROM erasures WHERE user_id = %s", erased.user_id)
    backed_up_stack.query(
        "UPDATE users SET erased_at = NULL, email = %s WHERE id = %s", erased.email, erased.user_id
    )
    backed_up_stack.query("UPDATE lists SET archived_at = NULL WHERE id = %s", own_list_id)
    assert journal.replay_journal(backups.resources, backups.place, began_at) == ReplayResult(
        1, 1, 1
    )
    status_query = "SELECT status FROM subscriptions WHERE list_id = %s AND user_id = %s"
    assert backed_up_stack.query(status_query, journaled_list_id, leaver.user_id) == [
        ("unsubscribed",)
    ]
    [(email, erased_at)] = backed_up_stack.query(
        "SELECT email, erased_at FROM users WHERE id = %s", erased.user_id
    )
    assert erased_at is not None
    assert erased.email not in str(email)
    # The replay must archive the list of the erased person again, so that Pressroom sends no more
    # mail in that person's name.
    assert (
        backed_up_stack.query(
            "SELECT 1 FROM lists WHERE id = %s AND archived_at IS NULL", own_list_id
        )
        == []
    )
    assert journal.replay_journal(backups.resources, backups.place, began_at) == ReplayResult(
        1, 0, 0
    )


def test_opt_outs_that_a_sender_reported_survive_the_restore_of_an_earlier_backup(
    backups: Backups, journaled_list_id: int
) -> None:
    stack = backups.stack
    list_id = journaled_list_id
    began_at = clock.now()
    member = ImportRunner(stack).import_new_owner(list_id)
    [(sender_id,)] = stack.query(
        "INSERT INTO senders (user_id, name, provider, list_ids)"
        " SELECT user_id, 'x', 'generic', ARRAY[id] FROM lists WHERE id = %s RETURNING id",
        list_id,
    )
    complaints = body_of(
        report("complained", delivery_id=delivery_for(stack, list_id, member.user_id)),
        report("unsubscribed", email=f"{token_hex(8)}@example.com"),
    )
    sender = StoredSender(int(str(sender_id)), SenderProvider.GENERIC, SenderProof(()))
    intake.store_body(stack.resources, sender, PostedBody(complaints))
    assert applying.apply_waiting_bodies(stack.resources) == 1
    journal.write_journal(backups.resources)
    queries = (
        "SELECT user_id, source FROM opt_outs WHERE list_id = %s",
        "SELECT list_ids, source FROM address_opt_outs WHERE %s = ANY (list_ids)",
    )
    opt_outs = [stack.query(query, list_id) for query in queries]
    assert opt_outs == [
        [(member.user_id, "sender-complaint")],
        [([list_id], "sender-unsubscribe")],
    ]
    # Delete the opt-outs, as if someone had restored a backup that was made before the reports
    # arrived.
    stack.query("DELETE FROM opt_outs WHERE list_id = %s", list_id)
    stack.query("DELETE FROM address_opt_outs WHERE %s = ANY (list_ids)", list_id)
    assert journal.replay_journal(backups.resources, backups.place, began_at).opt_outs == 2
    assert [stack.query(query, list_id) for query in queries] == opt_outs
    assert journal.replay_journal(backups.resources, backups.place, began_at).opt_outs == 0
    status_query = "SELECT status FROM subscriptions WHERE list_id = %s AND user_id = %s"
    assert stack.query(status_query, list_id, member.user_id) == [("unsubscribed",)]


def test_backup_journal_has_one_row_per_opted_out_address(
    backups: Backups, journaled_list_id: int
) -> None:
    stack = backups.stack
    began_at = clock.now()
    owner = stack.create_owner()
    list_ids = sorted(ImportRunner(stack).new_list(owner) for _ in range(3))

    def record(list_ids: list[int]) -> int | None:
        reported = [ReportedAddress(b"x" * 32, "sender-complaint", list_ids)]
        with stack.resources.unit_of_work() as uow:
            address_opt_outs.record(uow, owner.account_id, [], reported)
        return journal.write_journal(backups.resources)

    assert [record(list_ids[:2]), record(list_ids[:2]), record(list_ids[1:])] == [1, 0, 1]
    first_row, second_row = read_journal(backups)
    assert (first_row["kind"], first_row["list_ids"]) == ("address", list_ids[:2])
    assert second_row["list_ids"] == list_ids
    # The second list was created after the backup, so the restored database doesn't contain it.
    stack.query("DELETE FROM address_opt_outs WHERE user_id = %s", owner.user_id)
    stack.query("DELETE FROM lists WHERE id = %s", list_ids[1])
    assert journal.replay_journal(backups.resources, backups.place, began_at).opt_outs == 2
    query = "SELECT list_ids FROM address_opt_outs WHERE user_id = %s"
    assert stack.query(query, owner.user_id) == [([list_ids[0], list_ids[2]],)]


def test_journal_replay_skips_unknown_lists_and_records_opt_outs_of_unknown_people(
    backups: Backups, journaled_list_id: int
) -> None:
    began_at = clock.now()
    digest = token_hex(32)
    row = {"kind": "list", "address_hmac": digest, "source": "page", "at": began_at}
    rows = [
        {**row, "list_id": 1, "user_id": 1},
        {**row, "list_id": journaled_list_id, "user_id": 1},
        {**row, "kind": "erased", "list_id": None, "user_id": 1},
    ]
    backups.place.put(f"journal/{manifests.format_timestamp(began_at)}-test", orjson.dumps(rows))
    assert journal.replay_journal(backups.resources, backups.place, began_at) == ReplayResult(
        1, 1, 0
    )
    # The database keeps the opt-out of an unknown address, so that the opt-out applies if an owner
    # adds this address later.
    assert backups.stack.query(
        "SELECT list_id, user_id, kind FROM opt_outs WHERE address_hmac = %s", bytes.fromhex(digest)
    ) == [(journaled_list_id, None, OptOutKind.LIST)]
