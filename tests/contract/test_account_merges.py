"""An account moves to an address that has a record of its own, and the two become one."""

from decimal import Decimal

import httpx
import pytest

from core import clock
from services.mailing import member_figures
from services.money.credits.ledger import grant
from services.people.accounts import find_by_email
from tests.contract.bulk import add, exported
from tests.contract.moving import CONFIRM, MOVED, ask, brought, join, leave, roster
from tests.contract.replies import data, problem
from tests.contract.subscribers import (
    count,
    known_member,
    member,
    members,
    new_list,
    trace_for,
)
from tests.erasing import erase
from tests.merging import make_due
from tests.stack import Stack, eventually
from tests.upkeep import run_upkeep
from tests.visiting import (
    PASSWORD,
    Visitor,
    a_visitor,
    hidden,
    new_account,
    new_address,
    user_id_of,
)

AGREE = "Confirm that two records of yours become one"
TOGETHER = "The subscriptions of both your addresses are together"


def agree(person: Visitor, present: str, new: str) -> int:
    """Prove both addresses; returns the merge."""
    asked = ask(person, new)
    assert asked.headers["location"].endswith("/account/email/merge?sent=yes")
    done = person.fill_in(person.mailed_path(present, AGREE))
    assert done.headers["location"].endswith("/account?done=merge")
    user_id = user_id_of(person.stack, new)
    rows = person.stack.query(
        "SELECT id FROM account_merges WHERE user_id = %s AND status = 'agreed'", user_id
    )
    return int(str(rows[-1][0]))


def merged(stack: Stack, merge_id: int) -> None:
    """Let the days pass, and a worker do it."""
    link = (
        "SELECT 1 FROM mailed_links l JOIN account_merges m ON m.user_id = l.user_id"
        " WHERE m.id = %s AND l.purpose = 'account.undo_address'"
    )
    eventually(lambda: stack.query(link, merge_id), what="the mail to the old address")
    make_due(stack, merge_id)
    done = "SELECT 1 FROM account_merges WHERE id = %s AND status = 'merged'"
    eventually(lambda: stack.query(done, merge_id), within=60, what="the merge")


def require_exact(stack: Stack) -> None:
    """All counts and figures agree with the members that there are."""
    eventually(lambda: member_figures.verify(stack.resources) == [], what="exact figures")


# -- the whole way ---------------------------------------------------------------------------------


def test_two_records_of_a_person_become_one(
    stack: Stack, person: Visitor, present: str, client: httpx.Client, sender: httpx.Client
) -> None:
    both, theirs, own = (new_list(client)["id"] for _ in range(3))
    user_id, new = user_id_of(stack, present), new_address()
    other_id = brought(client, both, new, name="Known to the list")
    brought(client, theirs, new, name="Other")
    join(person, both)
    join(person, own)
    assert count(client, both) == 2

    asked = ask(person, new)
    # The new address is proved, and nothing is changed before the present one is too.
    assert present in person.get(asked.headers["location"]).text
    assert data(person.get("/users/me"))["email"] == present
    link = person.mailed_path(present, AGREE)
    assert new in person.get(link).text
    assert data(person.get("/users/me"))["email"] == present
    done = person.fill_in(link)
    assert "three days" in person.get(done.headers["location"]).text
    assert data(person.get("/users/me"))["email"] == new
    assert person.get(link).status_code == 403
    assert person.mailed(present, MOVED)

    # Mail goes to the new address at once, and once; owners see what they saw.
    assert [roster(sender, each) for each in (both, theirs, own)] == [[new], [new], [new]]
    assert known_member(client, both, present)["user_id"] == user_id
    assert known_member(client, both, new)["user_id"] == other_id

    [(merge_id,)] = stack.query("SELECT id FROM account_merges WHERE user_id = %s", user_id)
    merged(stack, int(str(merge_id)))
    assert person.mailed(new, TOGETHER)
    assert [roster(sender, each) for each in (both, theirs, own)] == [[new], [new], [new]]
    [left] = members(client, both)
    assert (left["user_id"], left["email"]) == (user_id, present)
    assert left["name"] == "Vi"
    [moved] = members(client, theirs)
    assert (moved["user_id"], moved["email"], moved["name"]) == (user_id, new, "Other")
    assert [row["email"] for row in exported(client, both)] == [present]
    assert [count(client, each) for each in (both, theirs, own)] == [1, 1, 1]
    require_exact(stack)
    # The person has it all, with what happened by either address.
    shown = {each["list_id"] for each in data(person.get("/subscriptions"))}
    assert shown == {both, theirs, own}
    told = data(client.get(f"/lists/{both}/members/{user_id}/history"))["items"]
    assert {each["action"] for each in told} >= {"subscribed", "merged"}
    events = data(person.get("/users/me/security-events"))["items"]
    assert [each["type"] for each in events[:2]] == ["records.merged", "address.changed"]
    kept = stack.query(
        "SELECT email, stage, finished_at IS NULL FROM account_merges WHERE id = %s", merge_id
    )
    assert kept == [(None, None, False)]


def test_asking_tells_nothing_of_an_address(
    stack: Stack, person: Visitor, client: httpx.Client, list_id: int
) -> None:
    reader = new_address()
    brought(client, list_id, reader)
    told, mailed = set(), set()
    for each in (new_address(), reader, new_account(stack)):
        reply = person.fill_in("/account/email", email=each, current=PASSWORD)
        told.add((reply.status_code, reply.headers["location"], reply.text))
        # The same mail to each, and none to the person who asked.
        mailed.add(person.mailed(each, CONFIRM).partition("?token=")[0])
    assert (len(told), len(mailed)) == (1, 1)
    assert stack.query("SELECT 1 FROM account_merges WHERE email = %s", reader) == []


def test_an_address_with_an_account_is_refused_to_who_proved_it(
    stack: Stack, person: Visitor, present: str, client: httpx.Client, list_id: int
) -> None:
    account = new_account(stack)
    # A record without a login too, once it has something of its own.
    credited = new_address()
    brought(client, list_id, credited)
    grant(stack.resources.database, user_id_of(stack, credited), Decimal(5), source_id="a present")
    for each in (account, credited):
        reply = ask(person, each)
        assert reply.status_code == 409
        assert "belongs to an account of its own" in reply.text
        assert stack.query("SELECT 1 FROM account_merges WHERE email = %s", each) == []
    assert data(person.get("/users/me"))["email"] == present
    with a_visitor(stack) as visitor:
        assert visitor.log_in(account).status_code == 303


def test_an_account_that_was_made_between_the_two_links_is_not_merged(
    stack: Stack, person: Visitor, present: str, client: httpx.Client, list_id: int
) -> None:
    new = new_address()
    brought(client, list_id, new)
    ask(person, new)
    with a_visitor(stack) as visitor:
        visitor.fill_in("/register", email=new)
        registering = visitor.mailed_path(new, "Finish your registration")
        assert visitor.fill_in(registering, name="New", password=PASSWORD).status_code == 303
    assert person.fill_in(person.mailed_path(present, AGREE)).status_code == 409
    assert data(person.get("/users/me"))["email"] == present


def test_the_links_are_for_the_person_who_asked_alone(
    stack: Stack, person: Visitor, present: str, client: httpx.Client, list_id: int
) -> None:
    new = new_address()
    brought(client, list_id, new)
    ask(person, new)
    link = person.mailed_path(present, AGREE)
    with a_visitor(stack) as stranger:
        assert stranger.get(link).status_code == 303
        stranger.log_in(new_account(stack))
        assert stranger.get(link).status_code == 403
        origin = {"Origin": stack.api_url}
        assert stranger.client.post(link, headers=origin).status_code == 403
    assert data(person.get("/users/me"))["email"] == present


def test_what_was_asked_and_not_agreed_to_lapses(
    stack: Stack, person: Visitor, present: str, client: httpx.Client, list_id: int
) -> None:
    new = new_address()
    brought(client, list_id, new)
    ask(person, new)
    link = person.mailed_path(present, AGREE)
    shown = hidden(person.get(link))
    stack.query("UPDATE account_merges SET expires_at = now() WHERE email = %s", new)
    assert person.get(link).status_code == 403
    assert person.client.post(link, data=shown).status_code == 403
    run_upkeep(stack, "maintenance.purge")
    assert stack.query("SELECT 1 FROM account_merges WHERE email = %s", new) == []


# -- undone ----------------------------------------------------------------------------------------


def test_the_old_address_undoes_it_all(
    stack: Stack, person: Visitor, present: str, client: httpx.Client, list_id: int
) -> None:
    user_id, new = user_id_of(stack, present), new_address()
    other_id = brought(client, list_id, new)
    merge_id = agree(person, present, new)
    undo = person.mailed_path(present, MOVED)
    assert person.fill_in(undo).status_code == 303
    assert user_id_of(stack, present) == user_id
    assert user_id_of(stack, new) == other_id
    assert stack.query("SELECT 1 FROM account_merges WHERE id = %s", merge_id) == []
    [(job_id,)] = stack.query(
        "SELECT id FROM jobs WHERE kind = 'account.merge' AND subject_id = %s", merge_id
    )
    make_due(stack, merge_id)
    ended = "SELECT result FROM jobs WHERE id = %s AND status = 'succeeded'"
    eventually(lambda: stack.query(ended, job_id), what="the job")
    assert stack.query(ended, job_id) == [({"merged": False},)]
    assert known_member(client, list_id, new)["user_id"] == other_id


def test_nothing_merges_while_the_change_can_be_undone(
    stack: Stack, person: Visitor, present: str, client: httpx.Client, list_id: int
) -> None:
    new = new_address()
    other_id = brought(client, list_id, new)
    merge_id = agree(person, present, new)
    undo = person.mailed_path(present, MOVED)
    due = (
        "SELECT run_at - now() BETWEEN '71 h' AND '72 h' FROM jobs"
        " WHERE subject_id = %s AND kind = 'account.merge'"
    )
    assert stack.query(due, merge_id) == [(True,)]
    # A mail that was sent late has a link that works for longer.
    stack.query(
        "UPDATE jobs SET run_at = now(), send_after = now(), sends = 1"
        " WHERE kind = 'account.merge' AND subject_id = %s",
        merge_id,
    )
    waits = "SELECT 1 FROM jobs WHERE kind = 'account.merge' AND subject_id = %s AND run_at > now()"
    eventually(lambda: stack.query(waits, merge_id), what="the job to be put off")
    assert known_member(client, list_id, new)["user_id"] == other_id
    assert person.get(undo).status_code == 200
    merged(stack, merge_id)
    assert person.get(undo).status_code == 403


# -- what holds ------------------------------------------------------------------------------------


def test_a_no_of_either_side_wins_at_once(
    stack: Stack, person: Visitor, present: str, client: httpx.Client, sender: httpx.Client
) -> None:
    new = new_address()
    left_own, left_other, no_mail = (new_list(client)["id"] for _ in range(3))
    for each in (left_own, left_other, no_mail):
        join(person, each)
        other_id = brought(client, each, new)
    leave(person, left_own)
    traces = {
        each: {"trace_id": trace_for(stack, each, other_id)} for each in (left_other, no_mail)
    }
    data(client.request("DELETE", f"/subscriptions/{left_other}", params=traces[left_other]))
    body = {"enabled": False, **traces[no_mail]}
    assert data(client.put(f"/subscriptions/{no_mail}/email", json=body)) == 1
    merge_id = agree(person, present, new)
    assert [roster(sender, each) for each in (left_own, left_other, no_mail)] == [[], [], []]
    merged(stack, merge_id)
    assert [roster(sender, each) for each in (left_own, left_other, no_mail)] == [[], [], []]
    assert [count(client, each) for each in (left_own, left_other, no_mail)] == [0, 0, 1]
    # Nobody brings the person back by either address.
    for each in (left_own, left_other):
        data(add(client, each, present, new))
        assert count(client, each) == 0
    require_exact(stack)


def test_links_in_mail_to_either_address_leave_the_list(
    stack: Stack, person: Visitor, present: str, client: httpx.Client, list_id: int
) -> None:
    new = new_address()
    other_id = brought(client, list_id, new)
    trace = {"trace_id": trace_for(stack, list_id, other_id)}
    merge_id = agree(person, present, new)
    merged(stack, merge_id)
    assert client.get("/unsubscribe", params=trace).status_code == 200
    assert count(client, list_id) == 1
    assert data(client.request("DELETE", f"/subscriptions/{list_id}", params=trace)) == 1
    assert count(client, list_id) == 0
    data(add(client, list_id, new))
    assert count(client, list_id) == 0
    assert data(person.get(f"/subscriptions/{list_id}/rel"))["status"] == "unsubscribed"


def test_no_owner_learns_the_other_address(
    stack: Stack, person: Visitor, present: str, client: httpx.Client, neighbour: httpx.Client
) -> None:
    new = new_address()
    mine, foreign = new_list(client)["id"], new_list(neighbour)["id"]
    join(person, mine)
    brought(neighbour, foreign, new)
    merged(stack, agree(person, present, new))
    assert member(client, mine, new) is None
    assert member(neighbour, foreign, present) is None
    tried = client.put(f"/lists/{mine}/members/{new}", json={"name": "Who is it?"})
    assert present not in str(problem(tried, 409, "member.elsewhere"))
    for owner, list_id, known, unknown in (
        (client, mine, present, new),
        (neighbour, foreign, new, present),
    ):
        [shown] = exported(owner, list_id)
        assert shown["email"] == known
        told = str(data(owner.get("/events", params={"limit": 100})))
        assert unknown not in told
        assert unknown not in str(members(owner, list_id))


def test_owners_see_the_new_address_when_the_person_says_so(
    stack: Stack, person: Visitor, present: str, client: httpx.Client, list_id: int
) -> None:
    new = new_address()
    join(person, list_id)
    ask(person, new)
    assert data(person.get("/users/me"))["email"] == new
    # What an owner has seen, no undo takes back.
    origin = {"Origin": stack.api_url}
    reply = person.client.post("/account/email/lists", headers=origin)
    assert reply.status_code == 409
    person.mailed(present, MOVED)
    user_id = user_id_of(stack, new)
    eventually(
        lambda: stack.query(
            "SELECT 1 FROM account_mails"
            " WHERE user_id = %s AND kind = 'address_changed' AND sent_at IS NOT NULL",
            user_id,
        ),
        what="the mail's end",
    )
    stack.query("UPDATE mailed_links SET expires_at = now() WHERE user_id = %s", user_id)
    # A mail that is still to be sent makes a link.
    sent = "UPDATE account_mails SET sent_at = %s WHERE user_id = %s AND kind = 'address_changed'"
    stack.query(sent, None, user_id)
    assert person.client.post("/account/email/lists", headers=origin).status_code == 409
    stack.query(sent, clock.now(), user_id)
    assert member(client, list_id, new) is None
    shown = hidden(person.get("/account/email"), 1)
    reply = person.client.post("/account/email/lists", data=shown)
    assert reply.headers["location"].endswith("?done=shown")
    eventually(lambda: member(client, list_id, new), what="the owner's view")
    assert member(client, list_id, present) is None
    # Their no holds for the address too that the owner knew.
    leave(person, list_id)
    for each in (present, new):
        data(add(client, list_id, each))
    assert count(client, list_id) == 0


# -- erased ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_merged", [False, True])
def test_the_erasure_of_the_person_erases_what_both_had(
    stack: Stack,
    person: Visitor,
    present: str,
    client: httpx.Client,
    is_merged: bool,
) -> None:
    new = new_address()
    both, theirs = new_list(client)["id"], new_list(client)["id"]
    join(person, both)
    brought(client, both, new, name="Known")
    other_id = brought(client, theirs, new, name="Known")
    data(
        client.request(
            "DELETE",
            f"/subscriptions/{theirs}",
            params={"trace_id": trace_for(stack, theirs, other_id)},
        )
    )
    merge_id = agree(person, present, new)
    if is_merged:
        merged(stack, merge_id)
    user_id = erase(stack.resources, new).user_id
    gone = (
        "SELECT count(*) FROM subscriptions WHERE user_id = ANY(%s)"
        " AND (email IS NOT NULL OR name IS NOT NULL OR status <> 'removed')"
    )
    eventually(lambda: stack.query(gone, [user_id, other_id]) == [(0,)], what="the erasure of both")
    for table, column in (
        ("users", "email"),
        ("subscriptions", "email"),
        ("account_merges", "email"),
        ("account_mails", "email"),
        ("mailed_links", "email"),
    ):
        for each in (present, new):
            assert stack.query(f"SELECT 1 FROM {table} WHERE {column} = %s", each) == []
    # The no outlives them.
    data(add(client, theirs, new))
    assert count(client, theirs) == 0
    with stack.resources.unit_of_work() as uow:
        assert find_by_email(uow, present) is None
    require_exact(stack)
