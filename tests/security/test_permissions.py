"""Tests that each route, page, form, job kind and event type declares its permission.

The expected permissions are written by hand, so that a wrong declaration fails a test. Those of
routes, pages and forms are in tests/support/security/calls.py and console_calls.py, and those of
jobs and events in permissions.py.
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
from tests.support.security.permissions import (
    PERMISSIONS_BY_EVENT_TYPE,
    PERMISSIONS_BY_JOB_KIND,
)

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
