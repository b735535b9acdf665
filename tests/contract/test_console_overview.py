"""Tests of the console's overview page: the checklist for new owners, and the owner's counts."""

import html
import re
from datetime import timedelta

from devstack.harness.polling import eventually
from devstack.harness.stack import Stack
from models import Plan
from services.senders.intake import MAX_REFUSED_CALLS_PER_HOUR
from tests.support.http.replies import data
from tests.support.imports.bulk import (
    build_address_file,
    build_addresses,
    import_members_file,
    upload,
)
from tests.support.lists import subscribers as lists
from tests.support.lists.people_on_lists import subscribe
from tests.support.lists.subscribers import new_address, new_list
from tests.support.people.consoles import OwnerAtConsole, at_console, rows_of
from tests.support.people.erasure import erase
from tests.support.senders.mailings import new_mailing
from tests.support.senders.own_senders import new_sender
from tests.support.senders.posting import reject_calls

OVERVIEW_PATH = "/console"
STEPS = (
    "Create a list",
    "Add a form to your website, or import members",
    "Make a test sign-up",
    "Send your first issue",
)
LIST, FORM, SIGN_UP, SEND = STEPS


def read_steps(text: str) -> dict[str, str]:
    """Map the label of each checklist step to "done", to "next", or to "" if the step is later."""
    [checklist] = re.findall(r'<ol class="checklist">(.*?)</ol>', text, re.S) or [""]
    steps = {}
    for state, content in re.findall(r"<li(?: class=\"(\w+)\")?>(.*?)</li>", checklist, re.S):
        [label] = re.findall(r"<(?:h3|span|a[^>]*)>([^<]+)", content)[:1]
        steps[label] = state
    return steps


def list_main_buttons(text: str) -> list[str]:
    return re.findall(r'class="button" href="[^"]*">([^<]*)<', text)


def read_figures(text: str) -> list[tuple[str, str]]:
    return re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", text)[:3]


def sign_up(console: OwnerAtConsole, list_id: int, page: str) -> None:
    """Subscribe a new person through a sign-up form on the page with this URL."""
    body = {"email": new_address()}
    reply = console.api.post(f"/subscriptions/{list_id}", json=body, headers={"Referer": page})
    assert reply.is_success, reply.text


def test_checklist_ticks_each_step_and_ends_after_the_last_step(
    console: OwnerAtConsole, stack: Stack
) -> None:
    text = console.see(OVERVIEW_PATH)
    assert read_steps(text) == {LIST: "next", FORM: "", SIGN_UP: "", SEND: ""}
    assert list_main_buttons(text) == ["Create a list"]
    assert "0 of 4 done" in text

    mailing_list = new_list(console.api, title="The <i>Daily</i> Demo")
    text = console.see(OVERVIEW_PATH)
    assert read_steps(text) == {LIST: "done", FORM: "next", SIGN_UP: "", SEND: ""}
    assert list_main_buttons(text) == ["Get the form"]
    assert "<i>Daily" not in text

    # A sign-up on Pressroom's own page doesn't complete the checklist step "add a form to your
    # website".
    sign_up(console, mailing_list["id"], f"{stack.api_url}/s/{mailing_list['slug']}")
    text = console.see(OVERVIEW_PATH)
    assert read_steps(text) == {LIST: "done", FORM: "next", SIGN_UP: "done", SEND: ""}

    sign_up(console, mailing_list["id"], "https://www.example.com/tea/join")
    text = console.see(OVERVIEW_PATH)
    assert read_steps(text) == dict.fromkeys(STEPS, "done") | {SEND: "next"}
    assert list_main_buttons(text) == ["How to send"]

    new_mailing(stack, mailing_list["id"], rows=1)
    text = console.see(OVERVIEW_PATH)
    assert "First steps" not in text
    assert list_main_buttons(text) == []


def test_checklist_counts_an_import_only_until_it_is_undone(console: OwnerAtConsole) -> None:
    mailing_list = new_list(console.api)
    result = import_members_file(console.api, mailing_list["id"], build_address_file(new_address()))
    text = console.see(OVERVIEW_PATH)
    assert read_steps(text) == {LIST: "done", FORM: "done", SIGN_UP: "next", SEND: ""}
    assert f'href="{console.visitor.stack.api_url}/s/{mailing_list["slug"]}"' in text
    data(console.api.delete(f"/imports/{result['import_id']}/members"))
    assert read_steps(console.see(OVERVIEW_PATH))[FORM] == "next"


def test_only_the_last_step_remains_when_the_account_has_more_than_ten_members(
    console: OwnerAtConsole, stack: Stack
) -> None:
    mailing_list = new_list(console.api)
    import_members_file(console.api, mailing_list["id"], build_address_file(*build_addresses(10)))
    text = console.see(OVERVIEW_PATH)
    assert read_steps(text)[SIGN_UP] == "next"
    assert "<figure" not in text
    import_members_file(console.api, mailing_list["id"], build_address_file(*build_addresses(1)))
    text = console.see(OVERVIEW_PATH)
    assert "First steps" not in text
    assert 'class="growing"' in text
    assert list_main_buttons(text) == []
    send_link = f'/lists/{mailing_list["id"]}/send">How to send</a>'
    assert send_link in text
    new_mailing(stack, mailing_list["id"], rows=1)
    assert send_link not in console.see(OVERVIEW_PATH)


def test_checklist_of_the_free_plan_offers_no_import(stack: Stack) -> None:
    with at_console(stack, stack.create_owner(plan=Plan.FREE)) as console:
        new_list(console.api)
        text = console.see(OVERVIEW_PATH)
        assert read_steps(text)["Add a form to your website"] == "next"
        assert "Import members" not in text


def test_overview_counts_the_same_lists_in_all_figures_and_in_the_chart(
    console: OwnerAtConsole,
) -> None:
    active_list = new_list(console.api, title="Tea <b>")
    archived_list = new_list(console.api)
    for member_count, mailing_list in ((11, active_list), (4, archived_list)):
        import_members_file(
            console.api, mailing_list["id"], build_address_file(*build_addresses(member_count))
        )
        data(lists.subscribe(console.api, mailing_list["id"], new_address()))
    data(console.api.delete(f"/lists/{archived_list['id']}"))
    text = console.see(OVERVIEW_PATH)
    figures = [("Members", "12"), ("Last 7 days", "+1"), ("Last 30 days", "+1")]
    assert read_figures(text) == figures
    title = "Net growth in 30 days, without 11 imported members"
    assert f'aria-label="{title}: 1 joined, 0 left, net +1."' in text
    assert ["Tea <b>", "12", "+1"] in rows_of(text)


def await_activity(console: OwnerAtConsole) -> str:
    """Wait until the overview shows a recent event, and return the list of recent events in HTML.

    The overview shows an event only after all older transactions of the database have ended.
    """

    def read_activity() -> str:
        activity_lists = re.findall(
            r'<ul class="people">(.*?)</ul>', console.see(OVERVIEW_PATH), re.S
        )
        return "".join(activity_lists)

    return eventually(read_activity, what="the recent activity")


def test_overview_shows_the_recent_activity_of_people_only(
    console: OwnerAtConsole, stack: Stack
) -> None:
    mailing_list = new_list(console.api, confirm_required=False)
    import_members_file(console.api, mailing_list["id"], build_address_file(*build_addresses(11)))
    assert "Recent activity" not in console.see(OVERVIEW_PATH)
    person = subscribe(stack, mailing_list["id"])
    activity = await_activity(console)
    assert activity.count("<li") == 1
    assert person.email in activity
    assert "subscribed, <time" in activity


def test_overview_says_that_a_sign_up_still_needs_confirmation(
    console: OwnerAtConsole, stack: Stack
) -> None:
    mailing_list = new_list(console.api, confirm_required=True)
    subscribe(stack, mailing_list["id"])
    assert "signed up, not confirmed yet, <time" in await_activity(console)


def test_overview_leaves_out_the_activity_of_erased_people(
    console: OwnerAtConsole, stack: Stack
) -> None:
    mailing_list = new_list(console.api, confirm_required=False)
    erased, person = (subscribe(stack, mailing_list["id"]) for _ in range(2))
    erase(stack.resources, erased.email)
    # Events become visible in their order, so the erasure is visible together with this sign-up.
    latest = subscribe(stack, mailing_list["id"])
    eventually(lambda: latest.email in await_activity(console), what="the latest sign-up")
    activity = await_activity(console)
    assert person.email in activity
    assert activity.count("<li") == 2
    assert "Someone" not in activity
    assert "was removed" not in activity


def test_overview_has_no_chart_when_all_members_were_imported(console: OwnerAtConsole) -> None:
    mailing_list = new_list(console.api)
    import_members_file(console.api, mailing_list["id"], build_address_file(*build_addresses(11)))
    text = console.see(OVERVIEW_PATH)
    assert "11 members were imported in the last 30 days. No one else joined or left." in text
    assert "<polyline" not in text


def test_overview_distinguishes_two_paused_webhooks_of_one_host(console: OwnerAtConsole) -> None:
    for url in (
        "http://127.0.0.1:9/members?to=x",
        "http://127.0.0.1:9/orders",
        "http://127.0.0.2:9/x",
    ):
        body = {"url": url, "types": ["subscription.created"]}
        endpoint = data(console.api.post("/webhook-endpoints", json=body))
        paused = {"state": "paused"}
        data(console.api.patch(f"/webhook-endpoints/{endpoint['id']}", json=paused))
    warnings = re.findall(r"<p>The webhook to (\S+) is paused\.", console.see(OVERVIEW_PATH))
    assert sorted(warnings) == ["127.0.0.1:9/members", "127.0.0.1:9/orders", "127.0.0.2:9"]


def test_overview_shows_all_warnings_and_failed_imports_first(console: OwnerAtConsole) -> None:
    for number in range(6):
        body = {"url": f"http://127.0.0.1:9/{number}", "types": ["subscription.created"]}
        endpoint = data(console.api.post("/webhook-endpoints", json=body))
        paused = {"state": "paused"}
        data(console.api.patch(f"/webhook-endpoints/{endpoint['id']}", json=paused))
    list_id = new_list(console.api)["id"]
    upload(console.api, list_id, b"name\nAda\n")
    page = console.see(OVERVIEW_PATH)
    [visible, folded] = re.findall(r'<ul class="warnings">(.*?)</ul>', page, re.S)[:2]
    assert re.findall(
        r"<p>(?:The webhook to \S+ )?(The import of members\.csv failed|is paused)", visible
    ) == [
        "The import of members.csv failed",
        *["is paused"] * 4,
    ]
    assert '<span class="folded">2 more</span><span class="unfolded">Show fewer</span>' in page
    assert folded.count("<p>The webhook") == 2


def test_overview_shows_a_failing_sender_with_its_reason_until_it_is_dismissed(
    console: OwnerAtConsole,
) -> None:
    sender = new_sender(console.api, name="Our <b>mail</b> server")
    reject_calls(console.api, sender, count=MAX_REFUSED_CALLS_PER_HOUR)
    page = console.see(OVERVIEW_PATH)
    warning = "The sender Our <b>mail</b> server is failing: its calls are rejected."
    assert html.escape(warning) in page
    [warnings] = re.findall(r'<ul class="warnings">(.*?)</ul>', page, re.S)
    assert "<time" in warnings
    assert f'/console/developers/senders/{sender["id"]}">See how to repair it</a>' in warnings
    assert html.escape(warning) not in console.do(OVERVIEW_PATH)


def test_overview_shows_the_outcome_of_the_last_mailing_of_all_lists(
    stack: Stack, console: OwnerAtConsole
) -> None:
    list_ids = [int(new_list(console.api, title=title)["id"]) for title in ("Harbour", "Garden")]
    assert "Last mailing" not in console.see(OVERVIEW_PATH)
    figures = {"delivered": 190, "hard_bounced": 10}
    new_mailing(stack, list_ids[1], rows=2, age=timedelta(days=3), label="Older letter")
    newest_id = new_mailing(stack, list_ids[0], rows=200, figures=figures, label="Autumn fair")
    text = console.see(OVERVIEW_PATH)
    assert f'/console/lists/{list_ids[0]}/mailings/{newest_id}"' in text
    assert 'aria-label="190 delivered, 10 bounced, 0 complained, 0 left of 200"' in text
    assert "Older letter" not in text


def test_owner_dismisses_a_warning_on_the_overview(console: OwnerAtConsole) -> None:
    list_id = new_list(console.api)["id"]
    upload(console.api, list_id, b"name\nAda\n")
    page = console.see(OVERVIEW_PATH)
    cause = "No column with e-mail addresses was found."
    assert f"The import of members.csv failed. {cause}" in page
    assert ">See what is wrong with the file</a>" in page
    assert "members.csv" not in console.do(OVERVIEW_PATH)
