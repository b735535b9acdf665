"""Tests a journey from the console: an owner watches a segment, and a program mails its members."""

from pathlib import Path

import httpx2
import pytest
from playwright.sync_api import Page, expect

from devstack.harness.stack import Owner, Stack
from tests.support.browser.consoles import log_in_browser
from tests.support.clients.building import build_python
from tests.support.documents.journey_programs import prepare_programs
from tests.support.lists.segments import new_segment
from tests.support.lists.subscribers import new_list, require_member
from tests.support.lists.watched_segments import WatchedSegment, put_member


@pytest.mark.tier("browser")
def test_tagged_members_get_one_welcome_mail_although_the_program_is_killed(
    page: Page, stack: Stack, owner: Owner, client: httpx2.Client, tmp_path: Path
) -> None:
    list_id = int(new_list(client)["id"])
    segment = WatchedSegment(stack, client, list_id, new_segment(client, list_id)["id"])
    emails = [put_member(segment) for _ in range(2)]
    console = f"{stack.api_url}/console"
    log_in_browser(page, stack, owner.user_id)

    page.goto(f"{console}{segment.path}")
    page.get_by_label("Time zone").fill("Europe/Berlin")
    page.get_by_role("button", name="Watch segment").click()
    watching = page.get_by_role("region", name="Watch this segment")
    expect(watching).to_contain_text("Working")
    segment.compare()
    for email in emails:
        user_id = require_member(client, list_id, email)["user_id"]
        page.goto(f"{console}/lists/{list_id}/members/{user_id}")
        page.get_by_label("Tags").fill("vip")
        page.get_by_role("button", name="Save").click()
        expect(page.locator(".notice")).to_have_text("The changes were saved.")
    segment.compare()
    page.goto(f"{console}{segment.path}")
    expect(watching.locator("dl")).to_contain_text("Recorded members2")
    segment.list_events(2)
    changes = [(each["change"], each["entry"], each["email"]) for each in segment.list_changes()]
    assert changes == [("entered", 1, email) for email in emails]

    client_folder = build_python(tmp_path) / "src"
    programs = prepare_programs(tmp_path, client_folder, owner, segment)
    # Before the first mail is sent, and after the first mail was recorded.
    for mail_number, expected_counts in ((1, [0, 0]), (2, [0, 1])):
        programs.kill("MAIL", mail_number)
        assert sorted(len(programs.list_mails(each)) for each in emails) == expected_counts
    for _ in range(2):
        programs.run()
        for email in emails:
            [mail] = programs.list_mails(email)
            assert mail["subject"] == "Welcome"
