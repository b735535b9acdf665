"""A person reports a list that they did not ask for, by its mail, or a stranger by its page."""

import html
import re
import secrets

import httpx2

from devstack.harness.polling import eventually
from devstack.harness.stack import Owner, Stack
from services.subscriptions import list_reports, lists
from tests.support.commands.running import printed
from tests.support.http.pages import BROWSER_HEADERS, follow_redirect, read_heading
from tests.support.http.replies import data
from tests.support.lists.people_on_lists import Subscriber, new_list, subscribe, subscribe_pending
from tests.support.people.erasure import erase
from tests.support.people.visiting import hidden
from tests.support.stack.maintenance import run_maintenance

TITLE = "The Morning Letter"
ASKS = "Report this list"
THANKS = "Thank you for your report"


def reported(stranger: httpx2.Client, subscriber: Subscriber) -> httpx2.Response:
    reply = stranger.post("/report", params={"trace_id": subscriber.trace_id})
    assert reply.status_code == 303, reply.text
    return follow_redirect(stranger, reply)


def reported_list(stack: Stack, list_id: int) -> dict[str, object]:
    """As the operator sees it."""
    listed = printed(stack, "lists", "reports", "--limit", "1000")
    [found] = [each for each in listed if each["list_id"] == list_id]
    return dict(found)


def reports(stack: Stack, list_id: int) -> list[tuple[object, ...]]:
    return stack.query("SELECT user_id FROM list_reports WHERE list_id = %s", list_id)


def test_abuse_report_is_recorded_only_once_per_person_and_unsubscribes_them(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client
) -> None:
    waiting = subscribe_pending(stack, new_list(client, TITLE, confirm_required=True))
    mailed = eventually(lambda: stack.mails(waiting.email), what="the mail")
    [link] = [word for word in mailed[0]["text"].split() if "/report?" in word]
    assert html.escape(link) in mailed[0]["html"]
    path = httpx2.URL(link).raw_path.decode()
    # Scanners open links, and change nothing.
    assert read_heading(stranger.get(path)) == ASKS
    assert stranger.head(path).status_code == 200
    assert reports(stack, waiting.list_id) == []
    for _ in range(2):
        done = stranger.post(path)
        assert read_heading(follow_redirect(stranger, done)) == THANKS
    assert reports(stack, waiting.list_id) == [(waiting.user_id,)]
    assert waiting.stands()[0] == "unsubscribed"
    # The link of the mail confirms nothing any more, and a stranger brings nobody back.
    [confirm] = re.findall(r"/confirm\?token=\S+", mailed[0]["text"])
    assert stranger.post(confirm).status_code == 409
    stranger.post(f"/subscriptions/{waiting.list_id}", json={"email": waiting.email})
    assert waiting.stands()[0] == "pending"


def test_unsubscribe_page_links_to_the_abuse_report_form(
    stranger: httpx2.Client, subscriber: Subscriber
) -> None:
    [link] = re.findall(r'href="(report\?[^"]+)"', stranger.get(subscriber.unsubscribe_url).text)
    assert read_heading(stranger.get(f"/{html.unescape(link)}")) == ASKS
    page = reported(stranger, subscriber)
    assert read_heading(page) == THANKS
    assert subscriber.email not in page.text
    assert subscriber.stands()[0] == "unsubscribed"


def test_abuse_report_by_a_member_requires_the_mailed_link(
    stranger: httpx2.Client, subscriber: Subscriber
) -> None:
    for query, status in (({}, 400), ({"trace_id": subscriber.trace_id[:-1] + "!"}, 403)):
        for reply in (
            stranger.get("/report", params=query),
            stranger.post("/report", params=query),
        ):
            assert reply.status_code == status
    assert subscriber.stands()[0] == "active"


def test_operator_sees_total_and_recent_abuse_reports_of_each_list(
    stack: Stack, owner: Owner, client: httpx2.Client, stranger: httpx2.Client
) -> None:
    list_id = new_list(client, TITLE)
    readers = [subscribe(stack, list_id) for _ in range(3)]
    for each in readers:
        reported(stranger, each)
    old = "UPDATE list_reports SET created_at = now() - interval '8 days' WHERE user_id = %s"
    stack.query(old, readers[0].user_id)
    found = reported_list(stack, list_id)
    expected = (TITLE, owner.user_id, owner.email)
    assert (found["title"], found["owner_id"], found["owner"]) == expected
    assert (found["reports"], found["reports_in_7_days"]) == (3, 2)
    # Erased people are not named, and their reports count.
    erase(stack.resources, readers[1].email)
    assert reported_list(stack, list_id)["reports"] == 3
    assert (None,) in reports(stack, list_id)


def test_abuse_report_from_the_sign_up_page_counts_only_once_per_network(
    stack: Stack, owner: Owner, client: httpx2.Client, stranger: httpx2.Client
) -> None:
    list_id = new_list(client, TITLE)
    slug = data(client.get(f"/lists/{list_id}"))["slug"]
    local, domain = owner.email.split("@")
    for page in (
        stranger.get(f"/s/{slug}"),
        # A form on the owner's own site leads here with what is to be corrected.
        stranger.post(
            f"/subscriptions/{list_id}", data={"email": "nobody"}, headers=BROWSER_HEADERS
        ),
    ):
        assert f"{local[0]}…@{domain}" in page.text
        assert owner.email not in page.text
        assert f"/s/{slug}/report" in page.text
    path = f"/s/{slug}/report"
    with stack.client() as other_browser:
        other_page = other_browser.get(path)
    asks = stranger.get(path)
    assert re.match(r"(\w+)=", asks.headers.pop("set-cookie"))[1].endswith("_form")  # type: ignore[index]
    assert read_heading(asks) == "Report this page"
    [token, foreign] = (hidden(each)["csrf_token"] for each in (asks, other_page))
    # Another website can't make its visitors report a list, even with the CSRF token of a form that
    # was loaded in the same network.
    for forged in (token[:-1] + "!", foreign, ""):
        assert stranger.post(path, data={"csrf_token": forged}).status_code == 403
    assert reports(stack, list_id) == []
    for _ in range(2):
        done = stranger.post(path, data={"csrf_token": token})
        thanks = follow_redirect(stranger, done)
        thanks.headers.pop("set-cookie")
        assert read_heading(thanks) == THANKS
    # A network reports a list once.
    assert reports(stack, list_id) == [(None,)]
    row = reported_list(stack, list_id)
    assert (row["reports"], row["by_strangers"]) == (1, 1)


def test_anonymous_abuse_reports_are_limited_per_network_and_per_list(
    stack: Stack, client: httpx2.Client
) -> None:
    list_id = new_list(client)
    network = secrets.token_bytes(32)

    def report(digest: bytes) -> int:
        with stack.resources.unit_of_work() as uow:
            list_reports.report_page(uow, lists.get_list(uow, list_id), digest)
        return len(reports(stack, list_id))

    others = [new_list(client) for _ in range(list_reports.MAX_PAGE_REPORTS_OF_NETWORK_A_DAY)]
    stack.query(
        "INSERT INTO list_reports (list_id, network_digest) SELECT id, %s FROM unnest(%s) AS id",
        network,
        others,
    )
    assert report(network) == 0
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
    reported(stranger, subscriber)
    age = "UPDATE list_reports SET created_at = now() - %s::interval WHERE list_id = %s"
    for days, left in (("364 days", 1), ("366 days", 0)):
        stack.query(age, days, subscriber.list_id)
        run_maintenance(stack, "maintenance.purge")
        assert len(reports(stack, subscriber.list_id)) == left
