"""Tests of the notices by which the console says in advance that a plan doesn't allow an action."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from core.errors.jobs import JOB_GIVEN_UP
from core.settings.notations import PlanQuota
from devstack.harness.stack import Owner, Stack
from models import Plan
from tests.support.http.replies import data
from tests.support.imports.bulk import build_address_file, fail_job, upload
from tests.support.imports.console_imports import NEW_IMPORT, preview_import
from tests.support.lists.segments import run_bulk_action
from tests.support.lists.subscribers import new_list
from tests.support.people.consoles import OwnerAtConsole, at_console, forms_of, read_page

ZERO_QUOTAS = ",".join(f"{quota}=0" for quota in PlanQuota)
CONTACT_EMAIL = "plans+eu@news.example"
# A phone breaks a long address before the "@".
CONTACT_SENTENCE = (
    'To get the paid plan, write to <a href="mailto:plans%2Beu@news.example">'
    "plans+eu<wbr>@news.example</a>."
)
WEBHOOK_URL = "http://127.0.0.1:9/hook"
# Maps the path of each page to the name of the quota that limits the use of the page's form.
QUOTAS_BY_PAGE = {
    "/console/lists/new": "lists",
    "/console/developers/keys/new": "API keys",
    "/console/images": "storage (MB)",
    NEW_IMPORT: "jobs in progress",
    "{list}/members/new": "members",
    "{list}/export": "jobs in progress",
    "{list}/bulk-actions/new": "jobs in progress",
    "{list}/segments/new": "storage (MB)",
    "{hook}": "storage (MB)",
    "{hook}/replay": "storage (MB)",
}


@contextmanager
def console_with(stack: Stack, owner: Owner, **settings: str) -> Iterator[OwnerAtConsole]:
    """Start an API with these settings, and log in to its console as the owner."""
    with stack.run_second_api(**settings) as api, at_console(api, owner) as console:
        yield console


def test_owner_on_the_free_plan_sees_where_to_get_the_paid_plan_before_adding_a_member(
    stack: Stack,
) -> None:
    owner = stack.create_owner(plan=Plan.FREE)
    with console_with(stack, owner, PRESSROOM_PLAN_CONTACT=CONTACT_EMAIL) as console:
        path = f"/console/lists/{new_list(console.api)['id']}/members/new"
        text = console.see(path)
        assert f"Adding members requires the paid plan. {CONTACT_SENTENCE}" in text
        assert forms_of(console.visitor.get(path)) == []
        assert CONTACT_SENTENCE in console.see("/console")


def test_owner_on_the_free_plan_can_preview_a_file_but_gets_no_import_button(stack: Stack) -> None:
    owner = stack.create_owner(plan=Plan.FREE)
    with console_with(stack, owner, PRESSROOM_PLAN_CONTACT=CONTACT_EMAIL) as console:
        list_id = new_list(console.api)["id"]
        notice = f"Importing files requires the paid plan. {CONTACT_SENTENCE}"
        assert f"You can preview files with the free plan. {notice}" in console.see(NEW_IMPORT)
        path = preview_import(console, list_id, build_address_file("ada@example.com"))
        text = console.see(path)
        assert notice in text
        assert 'value="start"' not in text
        assert 'value="look"' in text


def test_owner_on_the_free_plan_sees_no_link_to_imports(
    stack: Stack,
) -> None:
    for plan in Plan:
        with at_console(stack, stack.create_owner(plan=plan)) as console:
            list_id = new_list(console.api)["id"]
            paths = ("/console", "/console/lists", f"/console/lists/{list_id}")
            texts = [console.see(page) for page in (*paths, f"/console/lists/{list_id}/members")]
            texts_with_offer = [text for text in texts if "/console/imports/new" in text]
            assert len(texts_with_offer) == (3 if plan is Plan.PAID else 0), plan


def test_link_to_the_contact_page_for_the_paid_plan_sends_no_referrer(stack: Stack) -> None:
    url = "https://news.example/plans?from=console"
    owner = stack.create_owner(plan=Plan.FREE)
    with console_with(stack, owner, PRESSROOM_PLAN_CONTACT=url) as console:
        link = f'<a href="{url}" rel="noreferrer">Get the paid plan</a>'
        assert link in console.see("/console")


def test_notice_names_only_the_paid_plan_if_no_contact_is_configured(stack: Stack) -> None:
    with at_console(stack, stack.create_owner(plan=Plan.FREE)) as console:
        path = f"/console/lists/{new_list(console.api)['id']}/members/new"
        assert "Adding members requires the paid plan.</p>" in console.see(path)
        assert "To get the paid plan" not in console.see("/console")


def test_page_shows_a_notice_instead_of_a_form_that_the_plan_would_refuse(stack: Stack) -> None:
    owner = stack.create_owner()
    with stack.client(owner.key) as api:
        list_id = new_list(api)["id"]
        webhook_id = data(
            api.post("/webhook-endpoints", json={"url": WEBHOOK_URL, "types": ["credits.low"]})
        )["id"]
    settings = {"PRESSROOM_QUOTA_PAID": ZERO_QUOTAS, "PRESSROOM_PLAN_CONTACT": CONTACT_EMAIL}
    with console_with(stack, owner, **settings) as console:
        for page, quota in QUOTAS_BY_PAGE.items():
            path = page.format(
                list=f"/console/lists/{list_id}", hook=f"/console/developers/webhooks/{webhook_id}"
            )
            reply = console.visitor.get(path)
            assert f"You have reached your plan’s limit for {quota}." in read_page(reply), path
            # The page still shows the form for pausing a webhook, because pausing needs no quota.
            forms = [each for each in forms_of(reply) if not each[0].endswith("/state")]
            assert forms == [], path
            # The owner already has the paid plan.
            assert "To get the paid plan" not in reply.text
        text = console.see("/console/composer")
        assert "You have reached your plan’s limit for composer calls per day." in text
        for button in ("write", "find"):
            assert f'<button name="{button}"' not in text


def test_failed_import_shows_a_notice_instead_of_a_retry_that_the_plan_would_refuse(
    stack_without_workers: Stack,
) -> None:
    stack = stack_without_workers
    owner = stack.create_owner()
    with stack.client(owner.key) as api:
        file = build_address_file("ada@example.com")
        job = data(upload(api, new_list(api)["id"], file, prefer="respond-async"), 202)
        [import_record] = data(api.get("/imports"))["items"]
    fail_job(stack, job["id"], JOB_GIVEN_UP(reason="It broke.", hours=24))
    path = f"/console/imports/{import_record['id']}"
    with at_console(stack, owner) as console:
        assert "Try again" in console.see(path)
    with console_with(stack, owner, PRESSROOM_QUOTA_PAID=ZERO_QUOTAS) as console:
        text = console.see(path)
        assert "You have reached your plan’s limit for jobs in progress." in text
        assert "Try again" not in text


def test_removal_shows_a_notice_instead_of_an_undo_that_the_plan_would_refuse(
    stack: Stack,
) -> None:
    owner = stack.create_owner()
    with stack.client(owner.key) as api:
        list_id = new_list(api)["id"]
        data(api.put(f"/lists/{list_id}/members/ada@example.com", json={}), 200, 201)
        for action in ({"action": "tag", "value": "press"}, {"action": "remove"}):
            run_bulk_action(api, list_id, **action, filter={"field": "status", "is": "active"})
    with at_console(stack, owner) as console:
        text = console.see(f"/console/lists/{list_id}/bulk-actions")
        # The page lists the newest bulk action first. Reverse the links, so that the link to the
        # oldest bulk action comes first.
        paths = re.findall(r'href="[^"]*(/console/lists/\d+/bulk-actions/\d+)"', text)[::-1]
        for path in paths:
            assert "Undo bulk action" in console.see(path)
    with console_with(stack, owner, PRESSROOM_QUOTA_PAID=ZERO_QUOTAS) as console:
        tagging_page, removal_page = map(console.see, paths)
        # Undoing a bulk action that added tags adds no members, so the plan allows the undo.
        assert "Undo bulk action" in tagging_page
        assert "You have reached your plan’s limit for members." in removal_page
        assert "Undo bulk action" not in removal_page


def test_image_form_says_how_much_storage_is_free_only_if_the_largest_image_does_not_fit(
    stack: Stack,
) -> None:
    owner = stack.create_owner()
    for limit_mb, is_shown in ((4, True), (5, False)):
        quota = f"storage_mb={limit_mb}"
        with console_with(stack, owner, PRESSROOM_QUOTA_PAID=quota) as console:
            assert ("4.2 MB free." in console.see("/console/images")) == is_shown
            assert (" free." in console.see("/console/images")) == is_shown
