"""Tests that run the programs of docs/journeys.md as a reader does, and check the sent mails."""

import re
import subprocess
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import httpx2
import pytest

from devstack.harness.stack import Owner, Stack
from services.subscriptions.members.delivery_ids import read_delivery_id
from tests.support.documents import markdown
from tests.support.documents.journey_programs import (
    PAGE,
    JourneyPrograms,
    prepare_programs,
    save_programs,
)
from tests.support.documents.reader_folder import reader_folder
from tests.support.http.replies import data
from tests.support.lists.segments import new_field, set_member
from tests.support.lists.subscribers import new_address, new_list, require_member
from tests.support.lists.watched_segments import WatchedSegment, put_member, tag, watch_segment

_MAX_LINES = 60
_LINK = re.compile(r"<(http\S+/unsubscribe\?trace_id=[\w.~-]+)>")


@pytest.fixture
def segment(stack: Stack, client: httpx2.Client) -> WatchedSegment:
    return watch_segment(stack, client, int(new_list(client)["id"]))


@pytest.fixture
def programs(
    tmp_path: Path, client_folder: Path, owner: Owner, segment: WatchedSegment
) -> JourneyPrograms:
    return prepare_programs(tmp_path, client_folder, owner, segment)


def enter(segment: WatchedSegment, count: int = 1) -> list[str]:
    """Add members to the segment, and wait for their events."""
    emails = [put_member(segment, new_address(), tags=["vip"]) for _ in range(count)]
    segment.compare()
    segment.list_events(count)
    return emails


def test_welcome_mails_follow_after_3_and_30_days(
    programs: JourneyPrograms, segment: WatchedSegment, client: httpx2.Client
) -> None:
    [email] = enter(segment)
    user_id = require_member(client, segment.list_id, email)["user_id"]
    for days, count in ((0, 1), (0, 1), (2, 1), (1, 2), (26, 2), (1, 3), (30, 3)):
        if days:
            programs.move_due_times(days=days)
        programs.run()
        assert len(programs.list_mails(email)) == count
    mails = programs.list_mails(email)
    subjects = ["Welcome", "Our best letters", "Your first month"]
    assert [each["subject"] for each in mails] == subjects
    link = None
    for step, mail in enumerate(mails):
        headers = mail["headers"]
        assert headers["Message-ID"] == f"<welcome.{segment.id}.{user_id}.1.{step}@example.com>"
        assert headers["List-Unsubscribe-Post"] == "List-Unsubscribe=One-Click"
        assert headers["List-Id"].startswith("<")
        delivery = read_delivery_id(
            segment.stack.resources.keyring, headers["X-Pressroom-Delivery"]
        )
        assert delivery is not None
        assert delivery.user_id == user_id
        link = _LINK.fullmatch(headers["List-Unsubscribe"])
        assert link is not None
        assert f"Unsubscribe: {link[1]}\n" in mail["text"]
    assert link is not None
    one_click = httpx2.post(link[1], data={"List-Unsubscribe": "One-Click"})
    assert one_click.status_code == 200, one_click.text
    assert require_member(client, segment.list_id, email)["email_enabled"] is False


def test_welcome_stops_after_the_member_left_and_never_starts_again(
    programs: JourneyPrograms, segment: WatchedSegment
) -> None:
    [email] = enter(segment)
    programs.run()
    tag(segment, email, has_tag=False)
    segment.compare()
    segment.list_events(2)
    programs.run()
    tag(segment, email)
    segment.compare_after(days=1)
    assert [each["data"]["entry"] for each in segment.list_events(3)] == [1, 1, 2]
    programs.run()
    programs.move_due_times(days=30)
    programs.run()
    assert len(programs.list_mails(email)) == 1


def test_people_who_unsubscribed_get_no_mail_before_their_exit_is_known(
    programs: JourneyPrograms, segment: WatchedSegment, client: httpx2.Client
) -> None:
    [email, other_email] = enter(segment, 2)
    user_id = require_member(client, segment.list_id, email)["user_id"]
    data(client.delete(f"/subscriptions/{segment.list_id}/members/{user_id}"))
    programs.run()
    assert programs.list_mails(email) == []
    assert len(programs.list_mails(other_email)) == 1


def test_killed_welcome_program_sends_each_mail_once(
    programs: JourneyPrograms, segment: WatchedSegment
) -> None:
    emails = enter(segment, 2)
    programs.kill("MAIL")
    assert [len(programs.list_mails(each)) for each in emails] == [0, 0]
    # The program has recorded the first mail when it sends the second one.
    programs.kill("MAIL", 2)
    assert sorted(len(programs.list_mails(each)) for each in emails) == [0, 1]
    for _ in range(2):
        programs.run()
        assert [len(programs.list_mails(each)) for each in emails] == [1, 1]


def test_mail_that_was_being_sent_during_a_kill_keeps_its_message_id(
    programs: JourneyPrograms, segment: WatchedSegment
) -> None:
    [email] = enter(segment)
    programs.kill("DATA")
    for _ in range(2):
        programs.run()
        mails = programs.list_mails(email)
        assert len(mails) == 2
        assert len({each["headers"]["Message-ID"] for each in mails}) == 1


def test_refused_mail_delays_no_other_mail_and_is_tried_again_later(
    programs: JourneyPrograms, segment: WatchedSegment
) -> None:
    late_email = put_member(segment, f"later+{new_address()}", tags=["vip"])
    [email] = enter(segment)
    for expected_mails in (0, 0, 1, 1):
        programs.run()
        assert len(programs.list_mails(late_email)) == expected_mails
        assert len(programs.list_mails(email)) == 1
        # Each refusal delays the mail by six hours.
        programs.run()
        assert len(programs.list_mails(late_email)) == expected_mails
        programs.move_due_times(hours=6)


def test_birthday_mail_is_sent_once_a_year(
    programs: JourneyPrograms, segment: WatchedSegment, client: httpx2.Client
) -> None:
    new_field(client, "birthday", "date")
    segment.change(filter={"field": "fields.birthday", "anniversary": 0})
    segment.compare()
    today = datetime.now(UTC).date()

    def change_birthday(email: str, day: date) -> None:
        fields = {"birthday": day.replace(year=1988).isoformat()}
        set_member(client, segment.list_id, email, fields=fields)

    email = put_member(segment)
    change_birthday(email, today)
    segment.compare()
    segment.list_events(1)
    for _ in range(2):
        programs.run("birthday")
        [mail] = programs.list_mails(email)
    user_id = require_member(client, segment.list_id, email)["user_id"]
    expected_id = f"<birthday.{segment.id}.{user_id}.{today.year}.0@example.com>"
    assert mail["subject"] == "Happy birthday"
    assert mail["headers"]["Message-ID"] == expected_id

    # The member leaves on the next day, and enters again after a change of the birthday.
    segment.compare_after(days=1)
    change_birthday(email, today + timedelta(days=2))
    segment.compare_after(days=2)
    events = segment.list_events(3)
    assert [each["type"] for each in events[1:]] == ["segment.left", "segment.entered"]
    programs.run("birthday")
    is_next_year = events[2]["data"]["day"][:4] != str(today.year)
    assert len(programs.list_mails(email)) == 1 + is_next_year


def test_birthday_mail_outlasts_an_outage_of_three_days(
    programs: JourneyPrograms, segment: WatchedSegment, stack: Stack
) -> None:
    recent_email, old_email = enter(segment, 2)
    today = datetime.now(UTC).date()
    for email, days in ((recent_email, 3), (old_email, 4)):
        user_id = require_member(segment.client, segment.list_id, email)["user_id"]
        stack.query(
            "UPDATE feed_events SET data = jsonb_set(data::jsonb, '{day}', to_jsonb(%s::text))"
            " WHERE list_id = %s AND (data ->> 'user_id')::bigint = %s"
            " AND type = 'segment.entered'",
            (today - timedelta(days=days)).isoformat(),
            segment.list_id,
            user_id,
        )
        tag(segment, email, has_tag=False)
    segment.compare()
    segment.list_events(4)
    programs.run("birthday")
    assert len(programs.list_mails(recent_email)) == 1
    assert programs.list_mails(old_email) == []


def test_commands_of_the_page_work(
    stack: Stack, demo: Owner, client_folder: Path, tmp_path: Path
) -> None:
    script = "".join(
        each.text for each in markdown.blocks(PAGE) if each.is_run and each.language == "sh"
    )
    save_programs(tmp_path)
    with reader_folder(tmp_path, stack, demo.key) as folder:
        completed = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            check=False,
            cwd=folder,
            env={
                **stack.environment,
                "HOME": str(folder),
                "CURL_HOME": str(folder),
                "PYTHONPATH": str(client_folder),
            },
            capture_output=True,
            text=True,
        )
    assert completed.returncode == 0, completed.stdout + completed.stderr
    assert (tmp_path / "welcome.sqlite3").exists()


def test_welcome_program_has_60_lines(tmp_path: Path) -> None:
    save_programs(tmp_path)
    lines = (tmp_path / "welcome.py").read_text().splitlines()
    assert len([each for each in lines if each]) <= _MAX_LINES
