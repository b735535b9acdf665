"""An owner's request for a page of the console, and its answers."""

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
from api.browsers import NOTICE
from api.console.frame import console_page, console_part
from api.console.navigation import navigation_of
from api.console.typed_forms import TypedForm
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
class ConsoleVisit:
    """A request of a person who is logged in.

    Attributes:
        form: the fields that the person sent, if the request is a form's; its CSRF token is right.
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
        """Return the caller's list; another owner's is ``list.not_found``, as if there was none."""
        try:
            return lists.owned(uow, self.caller, list_id)
        except DomainError as error:
            if error.code != LIST_NOT_OWNER.code:
                raise
            raise LIST_NOT_FOUND() from None

    def media_sources(self) -> dict[str, str]:
        """Return where the images of a page come from, for its policy."""
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
        """Return a page of the console, with the notice of the action before it.

        ``foreign``: the other origins of which the page shows something, by directive.
        """
        cookies = self.state.cookies
        kept = cookies.read(self.request, NOTICE)
        notice = unquote(kept)[:MAX_NOTICE_CHARACTERS] if kept else None
        shown = {**self._frame(), "notice": notice, **values}
        reply = console_page(template, shown, status=status, foreign=foreign)
        if kept:
            cookies.drop(reply, NOTICE)
        return reply

    def part(self, template: str, **values: Any) -> str:
        """Return a part of a page, as markup that a script puts into the page."""
        return console_part(template, {**self._frame(), **values})

    def _frame(self) -> dict[str, Any]:
        keyring, settings = self.state.resources.keyring, self.state.resources.settings
        return {
            "base": settings.public_base,
            "csrf_token": sessions.csrf_token(keyring, self.member.cookie),
            "path": self.request.scope["path"],
            # Only the first page of a list has none.
            "cursor": self.request.query_params.get("cursor"),
            "navigation": ()
            if self.member.lacks_factor
            else navigation_of(is_operator=self.member.is_operator),
        }

    def form_page(self, template: str, form: TypedForm, **values: Any) -> Response:
        return self.page(template, status=form.status, form=form, **values)

    def refused(self, error: DomainError, places: Mapping[str, str] = _NOTHING) -> TypedForm:
        """Return the form that was sent, with its error; raises an error that no form corrects.

        ``places``: the fields at which errors that name no field are shown, by their codes.
        """
        if is_plan_error(error.code):
            # An event of the account, as in a request of a program.
            with self.unit_of_work() as uow:
                record_error(uow, self.user_id, error.code)
        return TypedForm(self.form).refused(error, places)

    def done(self, path: str, notice: str) -> Response:
        """Redirect by GET, so that a reload repeats nothing; the page there shows the notice."""
        reply = redirect_to_path(self.state, path)
        # A cookie holds no spaces and no letters beyond ASCII.
        self.state.cookies.keep(reply, NOTICE, quote(notice[:MAX_NOTICE_CHARACTERS]))
        return reply


def visit_of(member: Any) -> Any:
    """Depend on a visit of the person whom ``member`` finds."""

    async def visit(
        request: Request,
        state: StateOf,
        member: member,
    ) -> ConsoleVisit:
        return ConsoleVisit(request, state, member)

    return Depends(visit)


def form_visit_of(member: Any) -> Any:
    async def visit(
        request: Request,
        state: StateOf,
        member: member,
        form: FormOf,
    ) -> ConsoleVisit:
        return ConsoleVisit(request, state, member, form)

    return Depends(visit)


async def _empty_form() -> TypedForm:
    return TypedForm()


# The form of a page that is opened. A form's handler calls that of the page with what was sent.
EmptyForm = Annotated[TypedForm, Depends(_empty_form)]

Visit = Annotated[ConsoleVisit, visit_of(Member)]
FormVisit = Annotated[ConsoleVisit, form_visit_of(FormMember)]
# Visits with a login of the last 15 minutes: others are redirected to the login page and back.
RecentVisit = Annotated[ConsoleVisit, visit_of(RecentMember)]
RecentFormVisit = Annotated[ConsoleVisit, form_visit_of(RecentFormMember)]
# Visits of people who may lack the second factor that they need.
StarterVisit = Annotated[ConsoleVisit, visit_of(Starter)]
RecentStarterVisit = Annotated[ConsoleVisit, visit_of(RecentStarter)]
RecentFormStarterVisit = Annotated[ConsoleVisit, form_visit_of(RecentFormStarter)]
