"""Troubles such as failing requests or guessed passwords, and the alert that each must trigger."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from tests.support.alerts.trouble import (
    Trouble,
    calling_repeatedly,
    fault_at_proxy,
    holding_locks,
    without_table,
)
from tests.support.alerts.watched_site import Site
from tests.support.credits.credits import BALANCE
from tests.support.people.visiting import Visitor, new_account
from tests.support.stack.held_rows import uncommitted

# The number of concurrent callers of one route. The API has fewer threads than this for the route.
_CALLER_COUNT = 24


@contextmanager
def _password_guessed(site: Site) -> Iterator[None]:
    email = new_account(site.stack)

    def guess(site: Site, client: object) -> None:
        with site.stack.client() as browser:
            Visitor(site.stack, browser).log_in(email, "a wrong guess")

    with calling_repeatedly(site, guess):
        yield


def _list_locked(site: Site) -> AbstractContextManager[None]:
    return uncommitted(site.stack, "SELECT pg_advisory_lock(%s)", site.list_id)


REQUEST_TROUBLES = (
    Trouble(
        "table missing",
        without_table("segments"),
        "PressroomServerErrors",
        calls=lambda site, client: client.get(f"/lists/{site.list_id}/segments"),
    ),
    Trouble(
        "table locked",
        holding_locks("LOCK TABLE credit_accounts IN ACCESS EXCLUSIVE MODE"),
        "PressroomRequestsShed",
        calls=lambda _, client: client.get(BALANCE),
        callers=_CALLER_COUNT,
    ),
    Trouble(
        "Postgres very slow",
        fault_at_proxy("postgres", lambda proxy: proxy.delay(1.0)),
        "PressroomRequestsSlow",
        calls=lambda _, client: client.get(BALANCE),
    ),
    Trouble("passwords guessed", _password_guessed, "PressroomLoginsFail"),
    Trouble(
        "list locked", _list_locked, "PressroomListBusy", calls=Site.join, callers=_CALLER_COUNT
    ),
)
