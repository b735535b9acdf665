from playwright.sync_api import Page

from core.ids import PersonId
from devstack.harness.stack import Stack
from services.access import sessions
from tests.support.people.visiting import SESSION_COOKIE


def log_in_browser(page: Page, stack: Stack, user_id: int) -> None:
    with stack.resources.unit_of_work() as uow:
        cookie = sessions.begin_session(uow, PersonId(user_id))
    page.context.add_cookies([{"name": SESSION_COOKIE, "value": cookie, "url": stack.api_url}])
