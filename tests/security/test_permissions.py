"""Tests that each route, page, form, job kind and event type declares its permission.

The expected permissions are written by hand, so that a wrong declaration fails a test. Those of
routes, pages and forms are in tests/support/security/calls.py and console_calls.py.
"""

from typing import Any

import pytest

from api.app import create_app
from api.auth.requirements import CallerAccess, PageAccess, PublicAccess
from api.console.requests import ConsoleAccess
from api.openapi.document import find_access, list_api_routes
from cli.jobs import register_kinds
from core.settings import Settings
from services.feed.catalogue import CATALOGUE
from services.jobs.kinds import list_kinds
from tests.support.security.calls import CALLS
from tests.support.security.console_calls import CONSOLE_CALLS

# The pages outside the console that can require a login. They are about the person, not about an
# account.
PERSON_PAGES = {
    "GET /account",
    "GET /account/email",
    "GET /account/email/confirm",
    "GET /account/events",
    "GET /account/factors",
    "GET /account/factors/app",
    "GET /account/factors/codes",
    "GET /account/factors/passkey",
    "GET /account/password",
    "GET /oauth/authorize",
    "POST /account/email",
    "POST /account/email/confirm",
    "POST /account/factors",
    "POST /account/factors/app",
    "POST /account/factors/codes",
    "POST /account/factors/passkey",
    "POST /account/password",
    "POST /account/sessions",
    "POST /logout",
    "POST /oauth/authorize",
}
# Maps each kind of job to the permissions for seeing and for changing the job.
PERMISSIONS_BY_JOB_KIND = {
    "attachment.process": ("images", "images"),
    "export.members": ("figures", "export"),
    "members.add": ("figures", "edit"),
    "members.add_values": ("figures", "edit"),
    "members.bulk": ("figures", "edit"),
    "members.bulk_undo": ("figures", "edit"),
    "members.import": ("figures", "edit"),
    "members.suppress": ("figures", "edit"),
    "members.undo": ("figures", "edit"),
    "topup.open": ("money.read", "money"),
}
# The kinds of jobs that only API keys with the scope ``delivery`` can see.
ROSTER_JOB_KINDS = {"export.delivery", "export.limited_delivery"}
# The kinds of jobs that belong to no account, so that only operators can see them.
INTERNAL_JOB_KINDS = {
    "account.mail",
    "account.show_address",
    "attachment.thumbnail",
    "members.apply",
    "opt_out.follow",
    "person.erase",
    "subscription.mail_confirmation",
    "subscription.mail_preferences",
    "subscription.mail_reminder",
    "subscription.mail_welcome",
    "webhook.send",
}
PERMISSIONS_BY_EVENT_TYPE = {
    "attachment.deleted": "images",
    "attachment.failed": "images",
    "attachment.ready": "images",
    "bulk.ended": "figures",
    "credits.low": "money.read",
    "export.ended": "figures",
    "grant.created": "access",
    "grant.ended": "access",
    "import.ended": "figures",
    "key.created": "access",
    "key.ended": "access",
    "mailing.alarm": "figures",
    "order.disputed": "money.read",
    "order.paid": "money.read",
    "order.refunded": "money.read",
    "order.review": "money.read",
    "segment.entered": "members",
    "segment.left": "members",
    "segment.many": "figures",
    "sender.failing": "access",
    "sender.recovered": "access",
    "subscription.changed": "members",
    "subscription.confirmed": "members",
    "subscription.created": "members",
    "subscription.email_off": "members",
    "subscription.email_on": "members",
    "subscription.left": "members",
    "subscription.removed": "members",
    "subscription.transferred": "members",
}


def test_every_route_page_and_form_declares_the_permission_of_its_call() -> None:
    calls = {**CALLS, **CONSOLE_CALLS}
    rules = {
        f"{method} {route.path_format}": find_access(route)
        for route in list_api_routes(create_app(Settings.model_construct()))
        for method in route.methods or ()
    }
    # tests/security/test_page_access.py lists the public pages, whose rules have no permission.
    declared = {
        operation: rule and (rule.permission or "none")
        for operation, rule in rules.items()
        if operation in calls or not isinstance(rule, PublicAccess)
    }
    expected = {operation: call.permission for operation, call in calls.items()}
    assert declared == expected | dict.fromkeys(PERSON_PAGES, "none")


@pytest.mark.parametrize("rule", [CallerAccess, PageAccess, ConsoleAccess])
def test_access_rule_without_permission_prevents_the_start(rule: Any) -> None:
    with pytest.raises(TypeError, match="'permission'"):
        rule(check=lambda _: None)


def test_every_job_kind_declares_its_permissions() -> None:
    register_kinds()
    declared = {
        kind.name: kind.permissions for kind in list_kinds() if not kind.name.startswith("probe.")
    }
    without_permissions = dict.fromkeys(ROSTER_JOB_KINDS | INTERNAL_JOB_KINDS)
    assert declared == PERMISSIONS_BY_JOB_KIND | without_permissions


def test_every_event_type_declares_its_permission() -> None:
    declared = {kind: entry.permission for kind, entry in CATALOGUE.items()}
    assert declared == PERMISSIONS_BY_EVENT_TYPE
