"""The request of a person for a page of the console, with the responses to it."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Annotated, Any
from urllib.parse import quote, unquote

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from api.auth.page_sessions import (
    FormMember,
    Member,
    PageSession,
    RecentFormMember,
    RecentFormStarter,
    RecentMember,
    RecentStarter,
    Starter,
)
from api.auth.redirects import redirect_to_path
from api.auth.requirements import PUBLIC
from api.bodies.page_forms import FormFields, FormOf
from api.console.frame import console_page, console_part
from api.console.navigation import navigation_of
from api.console.typed_forms import TypedForm
from api.cookies import NOTICE
from api.route_classes import ThreadedRoute
from api.state import State, StateOf
from core.errors import DomainError
from core.errors.mailing import LIST_NOT_FOUND, LIST_NOT_OWNER
from models import MailingList
from services.access import sessions
from services.access.caller import Caller
from services.security_events import is_plan_error, record_error
from services.subscriptions import lists
from storage.unit_of_work import UnitOfWork

MAX_NOTICE_CHARACTERS = 500
_NOTHING: Mapping[str, str] = {}


def console_router(prefix: str) -> APIRouter:
    """Return the router of an area of the console, whose plain handlers work in threads."""
    return APIRouter(
        prefix=prefix, dependencies=[PUBLIC], include_in_schema=False, route_class=ThreadedRoute
    )


@dataclass(frozen=True)
class ConsoleRequest:
    """A request of a person who is logged in.

    Attributes:
        form: the fields of a submitted form, whose CSRF token is valid.
    """

    request: Request
    state: State
    member: PageSession
    form: FormFields = field(default_factory=dict)

    @property
    def caller(self) -> Caller:
        return self.member.caller

    @property
    def user_id(self) -> int:
        return self.member.user_id

    def unit_of_work(self) -> AbstractContextManager[UnitOfWork]:
        return self.state.resources.unit_of_work()

    def own_list(self, uow: UnitOfWork, list_id: int) -> MailingList:
        """Return the caller's list; raises ``list.not_found``, even for another owner's list."""
        try:
            return lists.get_own_list(uow, self.caller, list_id)
        except DomainError as error:
            if error.code != LIST_NOT_OWNER.code:
                raise
            raise LIST_NOT_FOUND() from None

    def media_sources(self) -> dict[str, str]:
        """Return the origin of a page's images for the page's Content-Security-Policy."""
        scheme, _, rest = self.state.resources.settings.media_base.partition("://")
        return {"img-src": f"{scheme}://{rest.partition('/')[0]}"}

    def page(
        self,
        template: str,
        *,
        status: int = 200,
        foreign: Mapping[str, str] = _NOTHING,
        **values: Any,
    ) -> Response:
        """Render a page of the console, with the notice of the last action.

        ``foreign``: other origins from which the page loads content, by directive.
        """
        cookies = self.state.cookies
        cookie = cookies.read(self.request, NOTICE)
        notice = unquote(cookie)[:MAX_NOTICE_CHARACTERS] if cookie else None
        page_values = {**self._frame(), "notice": notice, **values}
        response = console_page(template, page_values, status=status, foreign=foreign)
        if cookie:
            cookies.drop(response, NOTICE)
        return response

    def part(self, template: str, **values: Any) -> str:
        """Render a part of a page as markup, which a script inserts into the page."""
        return console_part(template, {**self._frame(), **values})

    def _frame(self) -> dict[str, Any]:
        resources = self.state.resources
        return {
            "base": resources.settings.public_base,
            "csrf_token": sessions.create_csrf_token(resources.keyring, self.member.cookie),
            "path": self.request.scope["path"],
            # The first page of a list has no cursor.
            "cursor": self.request.query_params.get("cursor"),
            "navigation": ()
            if self.member.lacks_factor
            else navigation_of(is_operator=self.member.is_operator),
        }

    def form_page(self, template: str, form: TypedForm, **values: Any) -> Response:
        return self.page(template, status=form.status, form=form, **values)

    def refused(self, error: DomainError, places: Mapping[str, str] = _NOTHING) -> TypedForm:
        """Return the submitted form with its error; raises an error that the form can't correct.

        ``places``: the fields that show an error without a field of its own, by the error's code.
        """
        if is_plan_error(error.code):
            # The API records this event too.
            with self.unit_of_work() as uow:
                record_error(uow, self.user_id, error.code)
        return TypedForm(self.form).refused(error, places)

    def done(self, path: str, notice: str) -> Response:
        """Redirect to a page that shows the notice, so that a reload doesn't repeat the action."""
        response = redirect_to_path(self.state, path)
        # A cookie can't hold spaces or letters outside of ASCII.
        self.state.cookies.keep(response, NOTICE, quote(notice[:MAX_NOTICE_CHARACTERS]))
        return response


def depend_on_console(member: Any) -> Any:
    """Depend on a request of the person that the dependency ``member`` finds."""

    async def build_request(
        request: Request,
        state: StateOf,
        member: member,
    ) -> ConsoleRequest:
        return ConsoleRequest(request, state, member)

    return Depends(build_request)


def depend_on_console_form(member: Any) -> Any:
    async def build_request(
        request: Request,
        state: StateOf,
        member: member,
        form: FormOf,
    ) -> ConsoleRequest:
        return ConsoleRequest(request, state, member, form)

    return Depends(build_request)


async def _empty_form() -> TypedForm:
    return TypedForm()


# A page with a form starts with empty inputs. After an error, the handler of the submitted form
# calls the handler of the page and passes the submitted form to it.
EmptyForm = Annotated[TypedForm, Depends(_empty_form)]

Console = Annotated[ConsoleRequest, depend_on_console(Member)]
ConsoleForm = Annotated[ConsoleRequest, depend_on_console_form(FormMember)]
# Requests with a login of the last 15 minutes. Other requests are redirected to the login page.
RecentConsole = Annotated[ConsoleRequest, depend_on_console(RecentMember)]
RecentConsoleForm = Annotated[ConsoleRequest, depend_on_console_form(RecentFormMember)]
# Requests of people who may lack the second factor that they need.
StarterConsole = Annotated[ConsoleRequest, depend_on_console(Starter)]
RecentStarterConsole = Annotated[ConsoleRequest, depend_on_console(RecentStarter)]
RecentStarterConsoleForm = Annotated[ConsoleRequest, depend_on_console_form(RecentFormStarter)]
