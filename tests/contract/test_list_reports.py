"""Tests of abuse reports about a list, from its mails and from its sign-up page."""

import html
import re
import secrets

import httpx2

from devstack.harness.polling import eventually
from devstack.harness.stack import Owner, Stack
from services.subscriptions import list_reports, lists
from tests.support.commands.running import run_json_command
from tests.support.http.pages import BROWSER_HEADERS, follow_redirect, read_heading
from tests.support.http.replies import data
from tests.support.lists.people_on_lists import Subscriber, new_list, subscribe, subscribe_pending
from tests.support.people.erasure import erase
from tests.support.people.visiting import read_hidden_fields
from tests.support.stack.maintenance import run_maintenance

TITLE = "The Morning Letter"
REPORT_HEADING = "Report this list"
THANKS_HEADING = "Thank you for your report"


def report_by_trace_id(stranger: httpx2.Client, subscriber: Subscriber) -> httpx2.Response:
    reply = stranger.post("/report", params={"trace_id": subscriber.trace_id})
    assert reply.status_code == 303, reply.text
    return follow_redirect(stranger, reply)


def read_report_counts(stack: Stack, list_id: int) -> dict[str, object]:
    """Return the report counts of a list, as the operator sees them."""
    counts_of_lists = run_json_command(stack, "lists", "reports", "--limit", "1000")
    [list_counts] = [each for each in counts_of_lists if each["list_id"] == list_id]
    return dict(list_counts)


def reporter_rows(stack: Stack, list_id: int) -> list[tuple[object, ...]]:
    return stack.query("SELECT user_id FROM list_reports WHERE list_id = %s", list_id)


def test_abuse_report_is_recorded_only_once_per_person_and_unsubscribes_them(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client
) -> None:
    pending = subscribe_pending(stack, new_list(client, TITLE, confirm_required=True))
    mails = eventually(lambda: stack.mails(pending.email), what="the mail")
    [link] = [word for word in mails[0]["text"].split() if "/report?" in word]
    assert html.escape(link) in mails[0]["html"]
    path = httpx2.URL(link).raw_path.decode()
    # Opening the link must not report the list, because mail scanners open all links.
    assert read_heading(stranger.get(path)) == REPORT_HEADING
    assert stranger.head(path).status_code == 200
    assert reporter_rows(stack, pending.list_id) == []
    for _ in range(2):
        reply = stranger.post(path)
        assert read_heading(follow_redirect(stranger, reply)) == THANKS_HEADING
    assert reporter_rows(stack, pending.list_id) == [(pending.user_id,)]
    assert pending.read_status()[0] == "unsubscribed"
    # After the abuse report, the mailed confirmation link no longer works. If the person signs up
    # again, the subscription is pending again.
    [confirm_path] = re.findall(r"/confirm\?token=\S+", mails[0]["text"])
    assert stranger.post(confirm_path).status_code == 409
    stranger.post(f"/subscriptions/{pending.list_id}", json={"email": pending.email})
    assert pending.read_status()[0] == "pending"


def test_unsubscribe_page_links_to_the_abuse_report_form(
    stranger: httpx2.Client, subscriber: Subscriber
) -> None:
    [link] = re.findall(r'href="(report\?[^"]+)"', stranger.get(subscriber.unsubscribe_url).text)
    assert read_heading(stranger.get(f"/{html.unescape(link)}")) == REPORT_HEADING
    page = report_by_trace_id(stranger, subscriber)
    assert read_heading(page) == THANKS_HEADING
    assert subscriber.email not in page.text
    assert subscriber.read_status()[0] == "unsubscribed"


def test_abuse_report_by_a_member_requires_the_mailed_link(
    stranger: httpx2.Client, subscriber: Subscriber
) -> None:
    for query, status in (({}, 400), ({"trace_id": subscriber.trace_id[:-1] + "!"}, 403)):
        for reply in (
            stranger.get("/report", params=query),
            stranger.post("/report", params=query),
        ):
            assert reply.status_code == status
    assert subscriber.read_status()[0] == "active"


def test_operator_sees_total_and_recent_abuse_reports_of_each_list(
    stack: Stack, owner: Owner, client: httpx2.Client, stranger: httpx2.Client
) -> None:
    list_id = new_list(client, TITLE)
    readers = [subscribe(stack, list_id) for _ in range(3)]
    for subscriber in readers:
        report_by_trace_id(stranger, subscriber)
    age_report = "UPDATE list_reports SET created_at = now() - interval '8 days' WHERE user_id = %s"
    stack.query(age_report, readers[0].user_id)
    counts = read_report_counts(stack, list_id)
    expected = (TITLE, owner.user_id, owner.email)
    assert (counts["title"], counts["owner_id"], counts["owner"]) == expected
    assert (counts["reports"], counts["reports_in_7_days"]) == (3, 2)
    # After a person's erasure, the person's report about the list still counts, but no longer names
    # the person.
    erase(stack.resources, readers[1].email)
    assert read_report_counts(stack, list_id)["reports"] == 3
    assert (None,) in reporter_rows(stack, list_id)


def test_abuse_report_from_the_sign_up_page_counts_only_once_per_network(
    stack: Stack, owner: Owner, client: httpx2.Client, stranger: httpx2.Client
) -> None:
    list_id = new_list(client, TITLE)
    slug = data(client.get(f"/lists/{list_id}"))["slug"]
    local_part, domain = owner.email.split("@")
    for page in (
        stranger.get(f"/s/{slug}"),
        # An invalid form on the owner's website leads to Pressroom's sign-up page, which shows the
        # error.
        stranger.post(
            f"/subscriptions/{list_id}", data={"email": "nobody"}, headers=BROWSER_HEADERS
        ),
    ):
        assert f"{local_part[0]}…@{domain}" in page.text
        assert owner.email not in page.text
        assert f"/s/{slug}/report" in page.text
    path = f"/s/{slug}/report"
    with stack.client() as other_browser:
        other_page = other_browser.get(path)
    report_form = stranger.get(path)
    assert re.match(r"(\w+)=", report_form.headers.pop("set-cookie"))[1].endswith("_form")  # type: ignore[index]
    assert read_heading(report_form) == "Report this page"
    [csrf_token, other_csrf_token] = (
        read_hidden_fields(each)["csrf_token"] for each in (report_form, other_page)
    )
    # Another website can't make its visitors report a list, even with the CSRF token of a form that
    # was loaded in the same network.
    for invalid_token in (csrf_token[:-1] + "!", other_csrf_token, ""):
        assert stranger.post(path, data={"csrf_token": invalid_token}).status_code == 403
    assert reporter_rows(stack, list_id) == []
    for _ in range(2):
        reply = stranger.post(path, data={"csrf_token": csrf_token})
        thanks_page = follow_redirect(stranger, reply)
        thanks_page.headers.pop("set-cookie")
        assert read_heading(thanks_page) == THANKS_HEADING
    # Several anonymous abuse reports from one network count as one report.
    assert reporter_rows(stack, list_id) == [(None,)]
    counts = read_report_counts(stack, list_id)
    assert (counts["reports"], counts["by_strangers"]) == (1, 1)


def test_anonymous_abuse_reports_are_limited_per_network_and_per_list(
    stack: Stack, client: httpx2.Client
) -> None:
    list_id = new_list(client)
    network_digest = secrets.token_bytes(32)

    def report(digest: bytes) -> int:
        with stack.resources.unit_of_work() as uow:
            list_reports.report_page(uow, lists.get_list(uow, list_id), digest)
        return len(reporter_rows(stack, list_id))

    other_list_ids = [
        new_list(client) for _ in range(list_reports.MAX_PAGE_REPORTS_OF_NETWORK_A_DAY)
    ]
    stack.query(
        "INSERT INTO list_reports (list_id, network_digest) SELECT id, %s FROM unnest(%s) AS id",
        network_digest,
        other_list_ids,
    )
    assert report(network_digest) == 0
    stack.query(
        "INSERT INTO list_reports (list_id, network_digest)"
        " SELECT %s, sha256(n::text::bytea) FROM generate_series(1, %s) AS n",
        list_id,
        list_reports.MAX_PAGE_REPORTS_OF_LIST - 1,
    )
    for _ in range(2):
        assert report(secrets.token_bytes(32)) == list_reports.MAX_PAGE_REPORTS_OF_LIST


def test_abuse_report_is_deleted_after_a_year(
    stack: Stack, stranger: httpx2.Client, subscriber: Subscriber
) -> None:
    report_by_trace_id(stranger, subscriber)
    set_age = "UPDATE list_reports SET created_at = now() - %s::interval WHERE list_id = %s"
    for report_age, remaining_count in (("364 days", 1), ("366 days", 0)):
        stack.query(set_age, report_age, subscriber.list_id)
        run_maintenance(stack, "maintenance.purge")
        assert len(reporter_rows(stack, subscriber.list_id)) == remaining_count
