from collections.abc import Callable
from secrets import token_hex

import orjson
import pytest
from pydantic import SecretStr

from core import clock
from core.errors import TransientError
from devstack.harness.free_ports import free_port
from devstack.harness.stack import Owner, Stack
from models import OptOutKind
from services.accounts import accounts
from services.backup import creating, journal, manifests
from services.backup.journal import Replayed
from services.subscriptions import lists
from services.subscriptions.members import unsubscribe
from services.subscriptions.members.changes import Actor, ActorKind, Via
from tests.services.backup.conftest import Saved, saved
from tests.services.backup.test_drill import new_person
from tests.support.imports.importing import Importing
from tests.support.people.erasure import erase

pytestmark = pytest.mark.stack

PENDING = "SELECT kind, user_id, list_id FROM departures ORDER BY id"


def leave(
    stack: Stack,
    list_id: int,
    user_id: int,
    act: Callable[..., object] = unsubscribe.unsubscribe_member,
) -> None:
    actor = Actor(ActorKind.USER, Via.LOGIN, user_id)
    with stack.resources.unit_of_work() as uow:
        act(uow, lists.get_list(uow, list_id), accounts.get(uow, user_id), actor)


def told(backups: Saved) -> list[dict[str, object]]:
    return [
        row
        for name in sorted(backups.files("journal"))
        for row in orjson.loads(backups.place.get(name))
    ]


@pytest.fixture
def list_id(shop: Stack) -> int:
    shop.query("DELETE FROM departures")
    return Importing(shop).new_list(shop.new_owner())


def test_each_way_to_leave_is_told_once(backups: Saved, list_id: int) -> None:
    shop = backups.stack
    user_id, email, _ = new_person(shop, list_id)
    leave(shop, list_id, user_id)
    # As an import does: many with one statement, of people who are known or not.
    shop.query(
        "INSERT INTO opt_outs (list_id, address_hmac, kind, source)"
        " SELECT %s, sha256(n::text::bytea), 'email', 'import' FROM generate_series(1, 7000) AS n",
        list_id,
    )
    erase(shop.resources, email)
    assert journal.write(backups.resources) == 7002
    rows = told(backups)
    assert [row["kind"] for row in rows] == ["list", *["email"] * 7000, "erased"]
    assert (rows[0]["user_id"], rows[0]["list_id"]) == (user_id, list_id)
    assert len(str(rows[0]["address_hmac"])) == 64
    assert (rows[-1]["user_id"], rows[-1]["list_id"]) == (user_id, None)
    assert shop.query(PENDING) == []
    assert journal.write(backups.resources) == 0
    assert len(backups.files("journal")) == 2


def test_what_the_place_does_not_take_waits_in_the_database(backups: Saved, list_id: int) -> None:
    shop = backups.stack
    user_id, *_ = new_person(shop, list_id)
    leave(shop, list_id, user_id)
    away = SecretStr(f"http://key:secret@127.0.0.1:{free_port()}/bucket")
    unreachable = saved(shop, backups.folder, backup_url=away)
    with pytest.raises(TransientError):
        journal.write(unreachable.resources)
    assert shop.query(PENDING) == [("list", user_id, list_id)]
    assert journal.write(backups.resources) == 1


def test_without_backups_nothing_is_told_and_nothing_is_made(shop: Stack, list_id: int) -> None:
    user_id, *_ = new_person(shop, list_id)
    leave(shop, list_id, user_id)
    assert journal.write(shop.resources) is None
    assert creating.make_if_due(shop.resources, clock.now()) is None
    assert shop.query(PENDING) == [("list", user_id, list_id)]


def test_a_replay_does_nothing_twice(backups: Saved, list_id: int) -> None:
    """As of a database from before: the opt-out and the erasure are taken back here by hand."""
    shop = backups.stack
    began_at = clock.now()
    leaver, *_ = new_person(shop, list_id)
    erased = new_person(shop, list_id)
    own_list = Importing(shop).new_list(Owner(*erased))
    leave(shop, list_id, leaver)
    shop.query("UPDATE lists SET archived_at = now() WHERE id = %s", own_list)
    erase(shop.resources, erased[1])
    journal.write(backups.resources)
    leave(shop, list_id, leaver, unsubscribe.undo_leave)
    shop.query("DELETE FROM erasures WHERE user_id = %s", erased[0])
    shop.query("UPDATE users SET erased_at = NULL, email = %s WHERE id = %s", erased[1], erased[0])
    shop.query("UPDATE lists SET archived_at = NULL WHERE id = %s", own_list)
    assert journal.replay(backups.resources, backups.place, began_at) == Replayed(1, 1, 1)
    status = "SELECT status FROM subscriptions WHERE list_id = %s AND user_id = %s"
    assert shop.query(status, list_id, leaver) == [("unsubscribed",)]
    [(email, erased_at)] = shop.query("SELECT email, erased_at FROM users WHERE id = %s", erased[0])
    assert erased_at is not None
    assert erased[1] not in str(email)
    # A list that is not archived would send mail in the name of a person who is gone.
    assert shop.query("SELECT 1 FROM lists WHERE id = %s AND archived_at IS NULL", own_list) == []
    assert journal.replay(backups.resources, backups.place, began_at) == Replayed(1, 0, 0)


def test_an_opt_out_of_a_list_or_a_person_that_is_not_there_harms_nothing(
    backups: Saved, list_id: int
) -> None:
    began_at = clock.now()
    digest = token_hex(32)
    row = {"kind": "list", "address_hmac": digest, "source": "page", "at": began_at}
    rows = [
        {**row, "list_id": 1, "user_id": 1},
        {**row, "list_id": list_id, "user_id": 1},
        {**row, "kind": "erased", "list_id": None, "user_id": 1},
    ]
    backups.place.put(f"journal/{manifests.stamp(began_at)}-test", orjson.dumps(rows))
    assert journal.replay(backups.resources, backups.place, began_at) == Replayed(1, 1, 0)
    # An owner who adds the address later finds that its person does not want that.
    assert backups.stack.query(
        "SELECT list_id, user_id, kind FROM opt_outs WHERE address_hmac = %s", bytes.fromhex(digest)
    ) == [(list_id, None, OptOutKind.LIST)]
