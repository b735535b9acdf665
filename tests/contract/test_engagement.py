"""Tests of what a list records about opens and clicks, and of the person's choice."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import httpx2
import pytest

from devstack.harness.polling import eventually
from devstack.harness.stack import Stack
from tests.support.http.replies import data, problem
from tests.support.imports.bulk import add, build_address_file, export_rows, import_members_file
from tests.support.lists.measured_lists import MeasuredList, new_measured_list
from tests.support.lists.subscribers import (
    Reader,
    await_mails,
    confirm,
    new_address,
    new_list,
    require_member,
    trace_for,
)
from tests.support.people.erasure import erase
from tests.support.senders.mailings import new_mailing
from tests.support.senders.posting import bounce, delivery_for, report
from tests.support.stack.maintenance import run_maintenance

TODAY = datetime.now(UTC).date


def read_consents(measured: MeasuredList, user_id: int) -> list[dict[str, object]]:
    path = f"/lists/{measured.id}/members/{user_id}/consent"
    return [each for each in data(measured.client.get(path))["items"] if each["engagement"]]


def read_actions(measured: MeasuredList, user_id: int) -> list[str]:
    path = f"/lists/{measured.id}/members/{user_id}/history"
    return [each["action"] for each in data(measured.client.get(path))["items"]]


def test_new_list_records_nothing(stack: Stack, client: httpx2.Client) -> None:
    assert new_list(client)["engagement"] == "off"
    unmeasured = new_measured_list(stack, client, "off")
    user_id = unmeasured.add_member()
    assert unmeasured.report_event("delivered", user_id) == "applied"
    assert unmeasured.report_event("opened", user_id) == "off"
    assert unmeasured.report_event("clicked", user_id, machine=True) == "off"
    assert unmeasured.read_engagement(user_id) is None
    assert unmeasured.count_marks(user_id) == 0


def test_row_counts_mailings_and_keeps_the_last_days(measured: MeasuredList) -> None:
    user_id = measured.add_member()
    yesterday = datetime.now(UTC) - timedelta(days=1)
    outcomes = measured.report(
        measured.build_report("delivered", user_id, 1, occurred_at=yesterday.isoformat()),
        measured.build_report("opened", user_id, 1),
        measured.build_report("opened", user_id, 1),
        measured.build_report("delivered", user_id, 2),
        measured.build_report("opened", user_id, 2, machine=True),
        measured.build_report("clicked", user_id, 2),
        measured.build_report("clicked", user_id, 2, machine=True),
        bounce("soft", "4.2.2", delivery_id=delivery_for(measured.stack, measured.id, user_id, 3)),
    )
    applied = "applied"
    assert outcomes == [
        *(applied, applied, "duplicate", applied, applied, applied, "ignored", applied)
    ]
    today = TODAY().isoformat()
    assert measured.read_engagement(user_id) == {
        "measured_since": yesterday.date().isoformat(),
        "delivered": 2,
        "opens": 1,
        "machine_opens": 1,
        "clicks": 1,
        "last_delivered": today,
        "last_opened": today,
        "last_machine_opened": today,
        "last_clicked": today,
        "bounces": 1,
        "last_bounced": today,
    }


def test_machine_and_person_count_separately(measured: MeasuredList) -> None:
    user_id = measured.add_member()
    measured.report_event("opened", user_id, machine=True)
    engagement = measured.read_engagement(user_id)
    assert engagement is not None
    assert (engagement["opens"], engagement["last_opened"]) == (0, None)
    measured.report_event("opened", user_id)
    engagement = measured.read_engagement(user_id)
    assert engagement is not None
    assert (engagement["opens"], engagement["machine_opens"]) == (1, 1)


def test_report_of_an_earlier_day_keeps_the_later_day(measured: MeasuredList) -> None:
    user_id = measured.add_member()
    measured.report_event("opened", user_id, 1)
    earlier = datetime.now(UTC) - timedelta(days=3)
    measured.report_event("opened", user_id, 2, occurred_at=earlier.isoformat())
    engagement = measured.read_engagement(user_id)
    assert engagement is not None
    days = (engagement["measured_since"], engagement["last_opened"])
    assert days == (earlier.date().isoformat(), TODAY().isoformat())


def test_open_of_a_mailing_older_than_30_days_is_late(measured: MeasuredList) -> None:
    user_id = measured.add_member()
    old = datetime.now(UTC) - timedelta(days=40)
    measured.stack.query(
        "UPDATE subscriptions SET created_at = %s WHERE user_id = %s", old - timedelta(1), user_id
    )
    measured.stack.query(
        "UPDATE subscription_events SET created_at = %s WHERE user_id = %s",
        old - timedelta(1),
        user_id,
    )
    assert measured.report_event("opened", user_id, 7, day=old) == "late"
    assert measured.read_engagement(user_id) is None


def test_consent_mode_records_only_people_who_said_yes(
    asking: MeasuredList, stranger: httpx2.Client
) -> None:
    silent_id, agreeing_id = asking.add_member(), asking.add_member()
    asking.answer(stranger, agreeing_id, enabled=True)
    assert asking.report_event("opened", silent_id) == "off"
    assert asking.report_event("opened", agreeing_id) == "applied"
    assert asking.read_engagement(silent_id) is None
    assert asking.read_engagement(agreeing_id) is not None
    # The delivery of the other member counts for the mailing, but not for the member.
    assert asking.report_event("delivered", silent_id) == "applied"
    assert asking.read_engagement(silent_id) is None


@pytest.mark.parametrize("mode", ["consent", "all"])
def test_no_deletes_the_row_and_marks_and_stops_recording(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client, mode: str
) -> None:
    measured = new_measured_list(stack, client, mode)
    user_id = measured.add_member()
    measured.answer(stranger, user_id, enabled=True)
    measured.report_event("opened", user_id)
    assert measured.count_marks(user_id) == 1
    measured.answer(stranger, user_id, enabled=False)
    member = measured.read_member(user_id)
    assert (member["engagement"], member["engagement_choice"]["answer"]) == (None, "no")
    assert (member["status"], member["email_enabled"]) == ("active", True)
    rows = stack.query("SELECT 1 FROM member_engagement WHERE user_id = %s", user_id)
    assert (len(rows), measured.count_marks(user_id)) == (0, 0)
    # The mail was sent before the no.
    assert measured.report_event("opened", user_id, 2) == "off"
    assert measured.read_engagement(user_id) is None


def test_latest_answer_counts(measured: MeasuredList, stranger: httpx2.Client) -> None:
    user_id = measured.add_member()
    measured.answer(stranger, user_id, enabled=False)
    measured.answer(stranger, user_id, enabled=True)
    measured.answer(stranger, user_id, enabled=True)
    assert measured.read_member(user_id)["engagement_choice"]["answer"] == "yes"
    assert measured.report_event("opened", user_id) == "applied"
    expected = ["engagement_allowed", "engagement_refused"]
    assert read_actions(measured, user_id)[:2] == expected
    [entry] = read_consents(measured, user_id)
    assert (entry["how"], entry["confirmed"]) == ("link", True)
    assert "This list may record how many of its e-mails I open" in str(entry["wording"])


def test_feed_contains_no_answers(
    measured: MeasuredList, reader: Reader, stranger: httpx2.Client
) -> None:
    reader.joins(measured.id)
    measured.answer(stranger, reader.user_id, enabled=True)
    measured.answer(stranger, reader.user_id, enabled=False)
    reader.leaves(measured.id)

    def list_types() -> list[str]:
        events = data(measured.client.get("/events"))["items"]
        return [each["type"] for each in events if each["data"].get("user_id") == reader.user_id]

    eventually(lambda: "subscription.left" in list_types(), what="the last event")
    assert set(list_types()) == {"subscription.created", "subscription.left"}


def test_person_with_a_login_answers_and_sees_the_engagement(
    measured: MeasuredList, reader: Reader
) -> None:
    reader.joins(measured.id)
    path = f"/subscriptions/{measured.id}/engagement"
    assert data(reader.client.put(path, json={"enabled": True})) == 1
    measured.report_event("opened", reader.user_id)
    membership = reader.read_membership(measured.id)
    assert membership["engagement"]["opens"] == 1
    assert membership["engagement_choice"]["answer"] == "yes"
    [listed] = data(reader.client.get("/subscriptions"))
    assert listed["engagement"] == membership["engagement"]
    query = {"trace_id": trace_for(measured.stack, measured.id, reader.user_id)}
    opponent = data(reader.client.get("/subscriptions/opponent", params=query))["sub"]
    assert (opponent["engagement"], opponent["engagement_choice"]) == (None, None)


def test_pages_of_members_contain_engagement_and_choice(
    measured: MeasuredList, stranger: httpx2.Client
) -> None:
    user_id = measured.add_member()
    measured.answer(stranger, user_id, enabled=True)
    measured.report_event("opened", user_id)
    member = measured.read_member(user_id)
    page = data(measured.client.get(f"/lists/{measured.id}/subscriptions"))
    body = {"filter": {"field": "status", "is": "active"}}
    search = data(measured.client.post(f"/lists/{measured.id}/members/search", json=body))
    for [item] in (page["items"], search["items"]):
        assert item["engagement"] == member["engagement"]
        assert item["engagement_choice"] == member["engagement_choice"]


def test_owner_can_only_say_no(measured: MeasuredList) -> None:
    user_id = measured.add_member()
    measured.report_event("opened", user_id)
    path = f"/subscriptions/{measured.id}/members/{user_id}/engagement"
    reply = measured.client.put(path, json={"enabled": True})
    problem(reply, 409, "engagement.only_by_person")
    assert data(measured.client.put(path, json={"enabled": False})) == 1
    assert data(measured.client.put(path, json={"enabled": False})) == 0
    assert measured.read_engagement(user_id) is None
    assert read_actions(measured, user_id)[0] == "engagement_refused"


def test_revoked_trace_id_allows_only_a_no(measured: MeasuredList, stranger: httpx2.Client) -> None:
    user_id = measured.add_member()
    measured.stack.query(
        "UPDATE lists SET traces_revoked_through = 9000000000000 WHERE id = %s", measured.id
    )
    path = f"/subscriptions/{measured.id}/engagement"
    query = {"trace_id": trace_for(measured.stack, measured.id, user_id)}
    reply = stranger.put(path, params=query, json={"enabled": True})
    problem(reply, 403, "trace.invalid")
    assert data(stranger.put(path, params=query, json={"enabled": False})) == 1
    assert measured.read_member(user_id)["engagement_choice"]["answer"] == "no"


def test_no_is_stored_while_a_bulk_action_locks_the_list(
    measured: MeasuredList, stranger: httpx2.Client
) -> None:
    user_id = measured.add_member()
    with measured.stack.resources.unit_of_work() as uow:
        uow.session.connection().exec_driver_sql(f"SELECT pg_advisory_xact_lock({measured.id})")
        measured.answer(stranger, user_id, enabled=False)
    assert measured.read_member(user_id)["engagement_choice"]["answer"] == "no"


def test_narrower_mode_hides_at_once_and_maintenance_deletes(measured: MeasuredList) -> None:
    user_id = measured.add_member()
    measured.report_event("opened", user_id)
    path = f"/lists/{measured.id}/engagement"
    assert data(measured.client.get(path, params={"mode": "consent"}))["would_delete"] == 1
    assert data(measured.client.get(path, params={"mode": "all"}))["would_delete"] == 0
    assert data(measured.client.get(path))["would_delete"] is None
    measured.set_mode("consent")
    assert measured.read_engagement(user_id) is None
    run_maintenance(measured.stack, "maintenance.engagement")
    assert measured.count_marks(user_id) == 0
    measured.set_mode("all")
    assert measured.read_engagement(user_id) is None


def test_leaving_ends_a_yes_but_not_a_no(
    stack: Stack,
    client: httpx2.Client,
    stranger: httpx2.Client,
    make_reader: Callable[[], Reader],
) -> None:
    measured = new_measured_list(stack, client)
    agreeing, refusing = make_reader().joins(measured.id), make_reader().joins(measured.id)
    measured.answer(stranger, agreeing.user_id, enabled=True)
    measured.answer(stranger, refusing.user_id, enabled=False)
    measured.report_event("opened", agreeing.user_id)
    for person in (agreeing, refusing):
        person.leaves(measured.id)
    assert measured.count_marks(agreeing.user_id) == 0
    for person in (agreeing, refusing):
        person.joins(measured.id)
    member = measured.read_member(agreeing.user_id)
    assert (member["engagement"], member["engagement_choice"]) == (None, None)
    assert measured.read_member(refusing.user_id)["engagement_choice"]["answer"] == "no"


def test_removal_deletes_the_engagement_and_its_undo_restores_nothing(
    measured: MeasuredList, stranger: httpx2.Client
) -> None:
    user_id = measured.add_member()
    measured.answer(stranger, user_id, enabled=True)
    measured.report_event("opened", user_id)
    email = measured.read_member(user_id)["email"]
    assert data(measured.client.delete(f"/subscriptions/{measured.id}/members/{user_id}")) == 1
    assert measured.count_marks(user_id) == 0
    data(add(measured.client, measured.id, email))
    member = measured.read_member(user_id)
    assert (member["engagement"], member["engagement_choice"]) == (None, None)


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ((True, None), "yes"),
        ((False, None), "no"),
        ((None, None), None),
        ((True, False), "no"),
        ((False, True), "no"),
    ],
)
def test_transfer_copies_a_yes_only_without_an_answer_and_a_no_always(
    stack: Stack,
    client: httpx2.Client,
    stranger: httpx2.Client,
    answers: tuple[bool | None, bool | None],
    expected: str | None,
) -> None:
    source, target = measured_lists = [new_measured_list(stack, client) for _ in range(2)]
    user_id = source.add_member()
    data(add(client, target.id, source.read_member(user_id)["email"]))
    for measured, answer in zip(measured_lists, answers, strict=True):
        if answer is not None:
            measured.answer(stranger, user_id, enabled=answer)
    path = f"/subscriptions/{source.id}/members/{user_id}/transfer"
    assert data(client.post(path, params={"dst_list_id": target.id})) == 1
    choice = target.read_member(user_id)["engagement_choice"]
    assert (choice and choice["answer"]) == expected
    if expected == "yes":
        assert len(read_consents(target, user_id)) == 1


def test_no_outlives_the_erasure(
    stack: Stack, measured: MeasuredList, stranger: httpx2.Client
) -> None:
    user_id = measured.add_member()
    email = measured.read_member(user_id)["email"]
    other_email = new_address()
    measured.answer(stranger, user_id, enabled=False)
    erase(stack.resources, email)
    rows = stack.query("SELECT 1 FROM engagement_answers WHERE user_id = %s", user_id)
    assert rows == []
    import_members_file(measured.client, measured.id, build_address_file(email, other_email))
    imported = require_member(measured.client, measured.id, email)
    assert imported["user_id"] != user_id
    assert imported["engagement_choice"]["answer"] == "no"
    other = require_member(measured.client, measured.id, other_email)
    assert other["engagement_choice"] is None
    assert measured.report_event("opened", imported["user_id"]) == "off"


def test_no_of_an_erased_person_applies_to_a_new_sign_up(
    stack: Stack, measured: MeasuredList, stranger: httpx2.Client
) -> None:
    user_id = measured.add_member()
    email = measured.read_member(user_id)["email"]
    measured.answer(stranger, user_id, enabled=False)
    erase(stack.resources, email)
    assert data(stranger.post(f"/subscriptions/{measured.id}", json={"email": email})) == 1
    member = require_member(measured.client, measured.id, email)
    assert member["engagement_choice"]["answer"] == "no"


def test_erasure_by_the_previous_release_is_completed_by_maintenance(
    stack: Stack, measured: MeasuredList, stranger: httpx2.Client
) -> None:
    refusing_id, agreeing_id = measured.add_member(), measured.add_member()
    measured.answer(stranger, refusing_id, enabled=False)
    measured.answer(stranger, agreeing_id, enabled=True)
    ids = [refusing_id, agreeing_id]
    stack.query("UPDATE users SET erased_at = now() WHERE id = ANY(%s)", ids)
    run_maintenance(stack, "maintenance.engagement")
    assert stack.query("SELECT 1 FROM engagement_answers WHERE user_id = ANY(%s)", ids) == []


def sign_up(measured: MeasuredList, stranger: httpx2.Client, **fields: object) -> dict[str, object]:
    """Sign up a new address, and return the member."""
    email = new_address()
    body = {"email": email, **fields}
    assert data(stranger.post(f"/subscriptions/{measured.id}", json=body)) == 1
    return require_member(measured.client, measured.id, email)


def test_yes_in_a_sign_up_without_confirmation_takes_effect_at_once(
    asking: MeasuredList, stranger: httpx2.Client
) -> None:
    member = sign_up(asking, stranger, engagement=True)
    assert member["engagement_choice"]["answer"] == "yes"  # type: ignore[index]
    [entry] = read_consents(asking, int(str(member["user_id"])))
    assert (entry["how"], entry["confirmed"]) == ("form", False)
    assert sign_up(asking, stranger)["engagement_choice"] is None


@pytest.mark.parametrize("mode", ["off", "all"])
def test_yes_in_a_sign_up_is_ignored_if_the_list_does_not_ask(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client, mode: str
) -> None:
    measured = new_measured_list(stack, client, mode)
    assert sign_up(measured, stranger, engagement=True)["engagement_choice"] is None


def test_yes_in_a_sign_up_takes_effect_with_the_confirmation(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client
) -> None:
    wording = "May we count the letters that you open?"
    asking = new_measured_list(
        stack, client, "consent", confirm_required=True, engagement_wording=wording
    )
    member = sign_up(asking, stranger, engagement=True)
    assert (member["status"], member["engagement_choice"]) == ("pending", None)
    [mail] = await_mails(stack, str(member["email"]))
    confirm(stranger, mail)
    user_id = int(str(member["user_id"]))
    assert asking.read_member(user_id)["engagement_choice"]["answer"] == "yes"
    [entry] = read_consents(asking, user_id)
    assert (entry["how"], entry["wording"]) == ("confirmation", wording)


def test_wording_follows_the_rules_for_texts_that_strangers_see(client: httpx2.Client) -> None:
    list_id = new_list(client)["id"]
    path = f"/lists/{list_id}"
    reply = client.patch(path, json={"engagement_wording": "x" * 301})
    problem(reply, 422, "list.words")
    reply = client.patch(path, json={"engagement_wording": "See https://evil.example"})
    problem(reply, 422, "text.leads_away")
    reply = client.patch(path, json={"engagement": "sometimes"})
    problem(reply, 422, "body.invalid")
    wording = "May we count which letters you open?"
    assert (
        data(client.patch(path, json={"engagement_wording": wording}))["engagement_wording"]
        == wording
    )


def test_roster_contains_the_word_and_the_mailing_the_number(
    measured: MeasuredList,
    client: httpx2.Client,
    delivery_client: httpx2.Client,
    stranger: httpx2.Client,
) -> None:
    refusing_id, agreeing_id, silent_id = (measured.add_member() for _ in range(3))
    measured.answer(stranger, refusing_id, enabled=False)
    measured.answer(stranger, agreeing_id, enabled=True)
    expected = {
        "off": ("none", "none", "none"),
        "consent": ("none", "full", "none"),
        "all": ("none", "full", "full"),
    }
    for mode, words in expected.items():
        measured.set_mode(mode)
        rows = export_rows(delivery_client, measured.id, "delivery")
        found = {int(row["user_id"]): row["engagement"] for row in rows}
        assert (found[refusing_id], found[agreeing_id], found[silent_id]) == words
        mailing = data(client.get(f"/lists/{measured.id}/mailings"))["items"][0]
        assert mailing["measured"] == words.count("full")


@pytest.mark.parametrize(("members", "shown"), [(19, None), (20, 1)])
def test_mailing_shows_opens_and_clicks_from_20_measured_members(
    measured: MeasuredList, members: int, shown: int | None
) -> None:
    user_id = measured.add_member()
    figures = {"measured": members}
    mailing_id = new_mailing(measured.stack, measured.id, rows=50, figures=figures)
    measured.report(
        measured.build_report("opened", user_id, mailing_id),
        measured.build_report("opened", user_id, mailing_id, machine=True),
        measured.build_report("clicked", user_id, mailing_id),
    )
    mailing = data(measured.client.get(f"/lists/{measured.id}/mailings/{mailing_id}"))
    assert mailing["measured"] == members
    assert [mailing[name] for name in ("opened", "machine_opened", "clicked")] == [shown] * 3


def test_figures_of_a_mailing_stay_after_a_no(
    measured: MeasuredList, stranger: httpx2.Client
) -> None:
    user_id = measured.add_member()
    mailing_id = new_mailing(measured.stack, measured.id, rows=50, figures={"measured": 20})
    measured.report_event("opened", user_id, mailing_id)
    measured.answer(stranger, user_id, enabled=False)
    mailing = data(measured.client.get(f"/lists/{measured.id}/mailings/{mailing_id}"))
    assert mailing["opened"] == 1


def test_statistics_count_active_members_by_answer_and_activity(
    measured: MeasuredList, stranger: httpx2.Client
) -> None:
    opened_id, delivered_id, refusing_id, _ = (measured.add_member() for _ in range(4))
    ages = {30: "30", 31: "90", 91: "180", 181: "365", 366: "older"}
    measured.report_event("opened", opened_id)
    measured.report_event("delivered", delivered_id)
    measured.answer(stranger, refusing_id, enabled=False)
    measured.answer(stranger, opened_id, enabled=True)
    path = f"/lists/{measured.id}/engagement"
    for days, key in ages.items():
        measured.stack.query(
            "UPDATE member_engagement SET last_opened = %s WHERE user_id = %s",
            TODAY() - timedelta(days=days),
            opened_id,
        )
        figures = data(measured.client.get(path))
        activity = {row["key"]: row["members"] for row in figures["activity"] if row["members"]}
        assert activity == {key: 1, "never": 1, "unknown": 2}
    assert figures["answers"] == {"yes": 1, "no": 1, "none": 2}
    assert figures["mode"] == "all"


def test_report_without_a_delivery_id_counts_for_the_only_list(measured: MeasuredList) -> None:
    user_id = measured.add_member()
    email = measured.read_member(user_id)["email"]
    [outcome] = measured.report(report("opened", email=email, message_id="m-1"))
    engagement = measured.read_engagement(user_id)
    assert outcome == "applied"
    assert engagement is not None
    assert engagement["opens"] == 1


def test_yes_of_a_member_who_has_not_confirmed_does_not_count(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client
) -> None:
    asking = new_measured_list(stack, client, "consent", confirm_required=True)
    user_id = int(str(sign_up(asking, stranger)["user_id"]))
    asking.answer(stranger, user_id, enabled=True)
    assert asking.read_member(user_id)["engagement_choice"] is None
