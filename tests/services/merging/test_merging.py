"""The job of a merge: in batches, beside all that may happen to the same people and lists."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from models import ListReport, MailingList, OptOutKind, User
from services.mailing import lists, member_figures
from services.mailing.imports import undo
from services.mailing.subscriptions import locks, subscribe, unsubscribe
from services.mailing.subscriptions.changes import Actor, ActorKind, Via
from services.merging import merge_stages, merge_turns, merged_lists
from services.people import accounts
from tests.erasing import erase
from tests.erasing import finish as finish_erasure
from tests.importing import Importing, csv_of
from tests.merging import agree, finish, job_of, make_due, merge, take_turn
from tests.services.mailing.subscriptions.racing import deadlocks, waits_for_a_lock
from tests.services.merging.lives import Had, found, live, new_people, now, rows_of
from tests.sizes import sized
from tests.stack import Owner, eventually

READER = Actor(ActorKind.USER, Via.LOGIN)
ROUNDS = sized(3, 30, few=1)
HEADER = ("email", "name", "tier", "city")


def join(quiet: Importing, list_id: int, user_id: int) -> None:
    with quiet.resources.unit_of_work() as uow:
        person, of = uow.session.get_one(User, user_id), lists.get(uow, list_id)
        settings = quiet.resources.settings
        subscribe.join(uow, settings.keyring, of, person, READER, settings=settings)


def told(quiet: Importing, list_id: int, user_id: int) -> list[object]:
    rows = quiet.stack.query(
        "SELECT action FROM subscription_events WHERE list_id = %s AND user_id = %s ORDER BY id",
        list_id,
        user_id,
    )
    return [action for (action,) in rows]


# -- in batches ------------------------------------------------------------------------------------


def test_a_merge_may_stop_after_any_batch_and_goes_on(
    quiet: Importing, keeper: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merged_lists, "MAX_LISTS", 2)
    monkeypatch.setattr(merge_stages, "MAX_MOVED_ROWS", 2)
    # Each turn is one step.
    monkeypatch.setattr(merge_turns, "MERGING_TURN_SECONDS", 0.001)
    user_id, other_id, _, other_email = new_people(quiet)
    list_ids = [quiet.new_list(keeper) for _ in range(7)]
    for each in list_ids:
        join(quiet, each, other_id)
    for each in list_ids[::2]:
        join(quiet, each, user_id)
    merge_id = agree(quiet.resources, user_id, other_email)
    make_due(quiet.stack, merge_id)
    job_id = job_of(quiet.resources, merge_id)
    finish(quiet.resources, job_id)
    for each in list_ids:
        [left] = found(quiet, each)
        assert (left["user_id"], left["status"]) == (user_id, "active")
        assert quiet.count(each) == 1
        assert "subscribed" in told(quiet, each, user_id)
    assert rows_of(quiet, other_id) == {}
    assert quiet.job(job_id).attempt > 7
    assert member_figures.verify(quiet.resources) == []


def test_what_requests_wrote_that_were_under_way_is_found_an_hour_later(
    quiet: Importing, keeper: Owner
) -> None:
    user_id, other_id, _, other_email = new_people(quiet)
    list_id = quiet.new_list(keeper)
    join(quiet, list_id, other_id)
    merge_id = agree(quiet.resources, user_id, other_email)
    merge(quiet.stack, merge_id)
    live(quiet, list_id, other_id, Had(refused=frozenset({"list"})))
    later = job_of(quiet.resources, merge_id)
    due = "SELECT run_at BETWEEN now() + '59 min' AND now() + '1 h', sends FROM jobs WHERE id = %s"
    assert quiet.stack.query(due, later) == [(True, 0)]
    merge(quiet.stack, merge_id)
    [left] = found(quiet, list_id)
    assert (left["user_id"], left["status"]) == (user_id, "unsubscribed")
    assert rows_of(quiet, other_id) == {}
    # And that is all.
    count = "SELECT count(*) FROM jobs WHERE kind = 'account.merge' AND subject_id = %s"
    assert quiet.stack.query(count, merge_id) == [(2,)]


def marked(
    quiet: Importing, keeper: Owner, monkeypatch: pytest.MonkeyPatch
) -> tuple[int, MailingList, User, int]:
    """A record that is marked as merged, with all its rows.

    Who takes it up, a list, the record as a request has read it before the mark, the merge's job.
    """
    user_id, other_id, _, other_email = new_people(quiet)
    list_id = quiet.new_list(keeper)
    join(quiet, list_id, other_id)
    with quiet.resources.unit_of_work() as uow:
        reader, of = uow.session.get_one(User, other_id), lists.get(uow, list_id)
    monkeypatch.setattr(merge_turns, "MERGING_TURN_SECONDS", 0.001)
    merge_id = agree(quiet.resources, user_id, other_email)
    make_due(quiet.stack, merge_id)
    job_id = job_of(quiet.resources, merge_id)
    take_turn(quiet.resources, job_id)
    return user_id, of, reader, job_id


def test_a_person_who_leaves_while_their_record_is_marked_has_left(
    quiet: Importing, keeper: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    user_id, of, reader, job_id = marked(quiet, keeper, monkeypatch)
    unsubscribe.opt_out(quiet.resources, of, reader, OptOutKind.LIST, READER)
    finish(quiet.resources, job_id)
    [left] = found(quiet, of.id)
    assert (left["user_id"], left["status"]) == (user_id, "unsubscribed")


def test_a_merge_and_who_leaves_meanwhile_never_wait_for_each_other(
    quiet: Importing, keeper: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    user_id, of, reader, _ = marked(quiet, keeper, monkeypatch)
    with ThreadPoolExecutor(1) as leaving:
        # As the merge locks them, where this is the order of the ids.
        with quiet.resources.unit_of_work() as uow:
            locks.lock_pair(uow, user_id, of.id)
            left = leaving.submit(
                unsubscribe.opt_out, quiet.resources, of, reader, OptOutKind.LIST, READER
            )
            eventually(lambda: waits_for_a_lock(quiet.stack), what="who leaves, by the old record")
            locks.lock_pair(uow, reader.id, of.id)
        left.result()
    opted_out = "SELECT user_id FROM opt_outs WHERE list_id = %s AND user_id IS NOT NULL"
    assert quiet.stack.query(opted_out, of.id) == [(user_id,)]


def test_each_report_of_a_list_counts_once(quiet: Importing, keeper: Owner) -> None:
    user_id, other_id, _, other_email = new_people(quiet)
    twice, once = quiet.new_list(keeper), quiet.new_list(keeper)
    with quiet.resources.unit_of_work() as uow:
        for list_id, whose in ((twice, user_id), (twice, other_id), (once, other_id)):
            uow.session.add(ListReport(list_id=list_id, user_id=whose))
    merge(quiet.stack, agree(quiet.resources, user_id, other_email))
    reporters = "SELECT user_id FROM list_reports WHERE list_id = %s ORDER BY user_id"
    assert quiet.stack.query(reporters, twice) == [(user_id,)]
    assert quiet.stack.query(reporters, once) == [(user_id,)]


# -- consent ---------------------------------------------------------------------------------------


def test_what_shows_consent_by_either_address_is_kept(quiet: Importing, keeper: Owner) -> None:
    user_id, _, _, other_email = new_people(quiet)
    list_id = quiet.new_list(keeper)
    task = quiet.bring(
        keeper,
        list_id,
        csv_of(
            [[other_email, "2024-05-06T07:08:09Z", "form", "192.0.2.9"]],
            ("email", "consent_at", "consent_how", "consent_ip"),
        ),
    )
    join(quiet, list_id, user_id)
    claims = (
        "SELECT s.user_id FROM consent_claims c JOIN subscriptions s ON s.id = c.subscription_id"
        " WHERE c.import_id = %s"
    )
    before = quiet.stack.query(claims, task.id)
    merge(quiet.stack, agree(quiet.resources, user_id, other_email))
    assert len(before) == 1
    assert quiet.stack.query(claims, task.id) == [(user_id,)]
    entries = quiet.stack.query(
        "SELECT how, import_id FROM consent_entries WHERE list_id = %s AND user_id = %s",
        list_id,
        user_id,
    )
    assert set(entries) == {("login", None), ("import", task.id)}
    quiet.take_back(keeper, task.id)
    assert quiet.stack.query(claims, task.id) == []


# -- undone imports --------------------------------------------------------------------------------


def test_an_import_that_only_the_other_address_was_in_is_taken_back_as_ever(
    quiet: Importing, keeper: Owner
) -> None:
    user_id, _, _, other_email = new_people(quiet)
    list_id = quiet.new_list(keeper)
    task = quiet.bring(keeper, list_id, csv_of([[other_email, "Ada", "", ""]], HEADER))
    merge(quiet.stack, agree(quiet.resources, user_id, other_email))
    assert [each["user_id"] for each in found(quiet, list_id)] == [user_id]
    assert quiet.take_back(keeper, task.id)["undone"] == 1
    assert found(quiet, list_id) == []
    assert quiet.count(list_id) == 0


@pytest.mark.parametrize("own_first", [True, False])
def test_no_undo_takes_away_what_the_other_record_stood_for(
    quiet: Importing, keeper: Owner, own_first: bool
) -> None:
    user_id, other_id, own_email, other_email = new_people(quiet)
    list_id = quiet.new_list(keeper)
    imported, joins = (own_email, other_id) if own_first else (other_email, user_id)
    task = quiet.bring(keeper, list_id, csv_of([[imported, "Ada", "", ""]], HEADER))
    join(quiet, list_id, joins)
    merge(quiet.stack, agree(quiet.resources, user_id, other_email))
    assert quiet.take_back(keeper, task.id) == {"import_id": task.id, "undone": 0, "kept": 1}
    [left] = found(quiet, list_id)
    assert (left["user_id"], left["status"]) == (user_id, "active")


def test_an_undo_takes_back_what_the_import_gave_the_other_record_and_no_more(
    quiet: Importing, keeper: Owner
) -> None:
    user_id, other_id, own_email, other_email = new_people(quiet)
    list_id = quiet.new_list(keeper)
    live(quiet, list_id, user_id, Had("active", name="Mine", created_at=now(quiet)))
    live(quiet, list_id, other_id, Had("active", name="Theirs", created_at=now(quiet)))
    header = ("email", "name", "tier", "city")
    task = quiet.bring(
        keeper,
        list_id,
        csv_of([[other_email, "Mine", "gold", "Oslo"]], header),
        on_existing="update",
        create_fields=True,
    )
    merge(quiet.stack, agree(quiet.resources, user_id, other_email))
    [left] = found(quiet, list_id)
    assert (left["name"], left["tier"], list(left["fields"].values())) == ("Mine", "gold", ["Oslo"])
    quiet.take_back(keeper, task.id)
    [left] = found(quiet, list_id)
    # The name is the own record's, though the import gave the other one the same.
    assert (left["name"], left["tier"], left["fields"]) == ("Mine", "free", {})
    assert (left["email"], left["status"]) == (own_email, "active")


# -- side by side ----------------------------------------------------------------------------------


def leave(quiet: Importing, list_ids: list[int], user_id: int) -> None:
    for each in list_ids:
        with quiet.resources.unit_of_work() as uow:
            reader, of = accounts.get(uow, user_id), lists.get(uow, each)
        unsubscribe.opt_out(quiet.resources, of, reader, OptOutKind.LIST, READER)


def erase_all(quiet: Importing, email: str, other_id: int) -> None:
    erase(quiet.resources, email)
    # That of the other record, unless it was merged before.
    found_jobs = quiet.stack.query("SELECT job_id FROM erasures WHERE user_id = %s", other_id)
    for (job_id,) in found_jobs:
        finish_erasure(quiet.resources, int(str(job_id)))


@pytest.mark.both("properties")
def test_nothing_waits_in_a_circle_and_nothing_comes_back(
    quiet: Importing, keeper: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merged_lists, "MAX_LISTS", 3)
    monkeypatch.setattr(undo, "BATCH", 2)
    before = deadlocks(quiet.stack)
    for _ in range(ROUNDS):
        people = [new_people(quiet) for _ in range(4)]
        leaver, erased, *others = people
        list_ids = [quiet.new_list(keeper) for _ in range(4)]
        rows = csv_of([[each, "Ada", "", ""] for *_, a, b in people for each in (a, b)], HEADER)
        tasks = [quiet.bring(keeper, each, rows) for each in list_ids]
        merges = [agree(quiet.resources, user_id, other) for user_id, _, _, other in people]
        jobs = [
            quiet.begin_undo(keeper, tasks[0].id),
            quiet.begin(keeper, list_ids[1], rows, on_existing="update"),
        ]
        acts: list[Callable[[], object]] = [
            *(partial(merge, quiet.stack, each) for each in merges),
            *(partial(quiet.work, each) for each in jobs),
            # By the record that is merged.
            partial(leave, quiet, list_ids[2:], leaver[1]),
            partial(erase_all, quiet, erased[3], erased[1]),
        ]
        with ThreadPoolExecutor(len(acts)) as threads:
            for each in [threads.submit(act) for act in acts]:
                each.result(100)
        quiet.follow_opt_outs()
        for merge_id in merges:
            merge(quiet.stack, merge_id)
        for list_id in list_ids[2:]:
            left = {each["user_id"]: each["status"] for each in found(quiet, list_id)}
            assert left[leaver[0]] == "unsubscribed"
            assert [left[user_id] for user_id, *_ in others] == ["active", "active"]
            assert not left.keys() & {each[1] for each in (leaver, *others)}
        gone = (
            "SELECT 1 FROM subscriptions WHERE user_id = ANY(%s)"
            " AND (email IS NOT NULL OR status <> 'removed')"
        )
        assert quiet.stack.query(gone, list(erased[:2])) == []
    assert member_figures.verify(quiet.resources) == []
    assert deadlocks(quiet.stack) == before


@pytest.mark.both("properties")
def test_a_person_with_many_lists(quiet: Importing, keeper: Owner) -> None:
    many = sized(300, 100_000, few=50)
    user_id, other_id, _, other_email = new_people(quiet)
    quiet.stack.query(
        "INSERT INTO lists (id, user_id, title, slug)"
        " SELECT 10000000 + %s * 200000 + n, %s, 'One of many', 'many-' || %s || '-' || n"
        " FROM generate_series(1, %s) n",
        user_id % 1000,
        keeper.user_id,
        user_id,
        many,
    )
    for whose, every in ((other_id, 1), (user_id, 10)):
        quiet.stack.query(
            "INSERT INTO subscriptions (list_id, user_id, status, email, source)"
            " SELECT l.id, %s, 'active', u.email, 'form' FROM lists l JOIN users u ON u.id = %s"
            " WHERE l.slug LIKE %s AND l.id %% %s = 0",
            whose,
            whose,
            f"many-{user_id}-%",
            every,
        )
    merge_id = agree(quiet.resources, user_id, other_email)
    make_due(quiet.stack, merge_id)
    finish(quiet.resources, job_of(quiet.resources, merge_id))
    count = "SELECT count(*) FROM subscriptions WHERE user_id = %s AND status = 'active'"
    assert quiet.stack.query(count, user_id) == [(many,)]
    assert rows_of(quiet, other_id) == {}
    assert member_figures.verify(quiet.resources) == []
