"""What the console tells owners in advance about actions that their plan doesn't allow."""

from collections.abc import Iterator
from contextlib import contextmanager

from core.settings.notations import PlanQuota
from devstack.harness.stack import Owner, Stack
from models import Plan
from tests.support.imports.bulk import of_addresses
from tests.support.imports.console_imports import NEW_IMPORT, preview_import
from tests.support.lists.subscribers import new_list
from tests.support.people.consoles import OwnerAtConsole, at_console, forms_of, shown

NOTHING = ",".join(f"{quota}=0" for quota in PlanQuota)
ADDRESS = "plans+eu@news.example"
# A phone breaks a long address before the "@".
WRITE = (
    'To get the paid plan, write to <a href="mailto:plans%2Beu@news.example">'
    "plans+eu<wbr>@news.example</a>."
)
# Each page with a form that uses a quota, and the quota that its notice names.
PAGES_BY_QUOTA = {
    "/console/lists/new": "lists",
    "/console/developers/keys/new": "API keys",
    "/console/images": "storage (MB)",
    NEW_IMPORT: "jobs in progress",
    "{list}/members/new": "members",
    "{list}/export": "jobs in progress",
    "{list}/bulk-actions/new": "jobs in progress",
    "{list}/segments/new": "storage (MB)",
}


@contextmanager
def console_with(stack: Stack, owner: Owner, **settings: str) -> Iterator[OwnerAtConsole]:
    """Start an API with these settings, and log in to its console as the owner."""
    with stack.run_second_api(**settings) as api, at_console(api, owner) as console:
        yield console


def test_free_plan_is_told_before_adding_a_member_where_to_get_the_paid_plan(stack: Stack) -> None:
    owner = stack.create_owner(plan=Plan.FREE)
    with console_with(stack, owner, PRESSROOM_PLAN_CONTACT=ADDRESS) as console:
        path = f"/console/lists/{new_list(console.api)['id']}/members/new"
        text = console.see(path)
        assert f"Adding members requires the paid plan. {WRITE}" in text
        assert forms_of(console.visitor.get(path)) == []
        assert WRITE in console.see("/console")


def test_free_plan_can_preview_a_file_but_gets_no_button_to_import_it(stack: Stack) -> None:
    owner = stack.create_owner(plan=Plan.FREE)
    with console_with(stack, owner, PRESSROOM_PLAN_CONTACT=ADDRESS) as console:
        listed = new_list(console.api)["id"]
        notice = f"Importing files requires the paid plan. {WRITE}"
        assert f"You can preview files with the free plan. {notice}" in console.see(NEW_IMPORT)
        path = preview_import(console, listed, of_addresses("ada@example.com"))
        text = console.see(path)
        assert notice in text
        assert 'value="start"' not in text
        assert 'value="look"' in text


def test_contact_page_for_the_paid_plan_learns_nothing_from_the_link(stack: Stack) -> None:
    url = "https://news.example/plans?from=console"
    owner = stack.create_owner(plan=Plan.FREE)
    with console_with(stack, owner, PRESSROOM_PLAN_CONTACT=url) as console:
        link = f'<a href="{url}" rel="noreferrer">Get the paid plan</a>'
        assert link in console.see("/console")


def test_free_plan_without_a_contact_names_only_the_paid_plan(stack: Stack) -> None:
    with at_console(stack, stack.create_owner(plan=Plan.FREE)) as console:
        path = f"/console/lists/{new_list(console.api)['id']}/members/new"
        assert "Adding members requires the paid plan.</p>" in console.see(path)
        assert "To get the paid plan" not in console.see("/console")


def test_page_shows_a_notice_instead_of_a_form_that_the_plan_would_refuse(stack: Stack) -> None:
    owner = stack.create_owner()
    with stack.client(owner.key) as api:
        listed = new_list(api)["id"]
    settings = {"PRESSROOM_QUOTA_PAID": NOTHING, "PRESSROOM_PLAN_CONTACT": ADDRESS}
    with console_with(stack, owner, **settings) as console:
        for page, quota in PAGES_BY_QUOTA.items():
            path = page.format(list=f"/console/lists/{listed}")
            reply = console.visitor.get(path)
            assert f"You have reached your plan’s limit for {quota}." in shown(reply), path
            assert forms_of(reply) == [], path
            # The owner already has the paid plan.
            assert "To get the paid plan" not in reply.text
        text = console.see("/console/composer")
        assert "You have reached your plan’s limit for composer calls per day." in text
        for button in ("write", "find"):
            assert f'<button name="{button}"' not in text
