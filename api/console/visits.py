"""An owner's request for a page of the console, and how it is answered."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Annotated, Any
from urllib.parse import unquote

from fastapi import Depends, Request
from fastapi.responses import Response

from api.access.page_sessions import (
    FormFields,
    FormMember,
    FormOf,
    Member,
    PageSession,
    RecentFormMember,
    RecentMember,
    redirect_to_path,
)
from api.console.console_frame import console_page, console_part
from api.console.navigation import navigation_of
from api.console.typed_forms import TypedForm
from api.parameters import StateOf
from api.state import State
from core.errors import DomainError
from services.access import sessions
from services.access.caller import Caller
from services.events.plan_refusals import is_plan_refusal, record_refusal
from storage.unit_of_work import UnitOfWork

MAX_NOTICE_CHARACTERS = 500
_NOTHING: Mapping[str, str] = {}


@dataclass(frozen=True)
class ConsoleVisit:
    """One request of a person who is logged in.

    Attributes:
        form: what the person sent, if the request is a form's; its CSRF token is checked.
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

    def page(
        self,
        template: str,
        *,
        status: int = 200,
        foreign: Mapping[str, str] = _NOTHING,
        **values: Any,
    ) -> Response:
        """A page from ``api/console/templates``, with the notice of what was done before it.

        Args:
            foreign: what the page shows of other origins, by the directive that allows it.
        """
        cookies = self.state.cookies
        kept = self.request.cookies.get(cookies.notice)
        notice = unquote(kept)[:MAX_NOTICE_CHARACTERS] if kept else None
        shown = {**self._frame(), "notice": notice, **values}
        reply = console_page(template, shown, status=status, foreign=foreign)
        if kept:
            cookies.drop_notice(reply)
        return reply

    def part(self, template: str, **values: Any) -> str:
        """A part of a page, as markup that a script puts into the page."""
        return console_part(template, {**self._frame(), **values})

    def _frame(self) -> dict[str, Any]:
        keyring, settings = self.state.resources.keyring, self.state.resources.settings
        return {
            "base": settings.public_base,
            "csrf_token": sessions.csrf_token(keyring, self.member.cookie),
            "path": self.request.scope["path"],
            "navigation": navigation_of(is_operator=self.member.is_operator),
        }

    def form_page(self, template: str, form: TypedForm, **values: Any) -> Response:
        """A page with a form, which answers with the status of what was wrong in it."""
        return self.page(template, status=form.status, form=form, **values)

    def refused(self, error: DomainError, places: Mapping[str, str] = _NOTHING) -> TypedForm:
        """The form that was sent, with why it was refused; raises what no form can put right.

        Args:
            places: the fields beside which refusals stand that name no field, by their codes.
        """
        if is_plan_refusal(error.code):
            # An event of the account, as where a program is refused.
            with self.unit_of_work() as uow:
                record_refusal(uow, self.user_id, error.code)
        return TypedForm(self.form).refused(error, places)

    def done(self, path: str, notice: str) -> Response:
        """Redirect there by GET, so that a reload repeats no act; the page shows the notice."""
        reply = redirect_to_path(self.state, path)
        self.state.cookies.keep_notice(reply, notice[:MAX_NOTICE_CHARACTERS])
        return reply


async def _visit(request: Request, state: StateOf, member: Member) -> ConsoleVisit:
    return ConsoleVisit(request, state, member)


async def _form_visit(
    request: Request, state: StateOf, member: FormMember, form: FormOf
) -> ConsoleVisit:
    return ConsoleVisit(request, state, member, form)


async def _recent_visit(request: Request, state: StateOf, member: RecentMember) -> ConsoleVisit:
    return ConsoleVisit(request, state, member)


async def _recent_form_visit(
    request: Request, state: StateOf, member: RecentFormMember, form: FormOf
) -> ConsoleVisit:
    return ConsoleVisit(request, state, member, form)


Visit = Annotated[ConsoleVisit, Depends(_visit)]
FormVisit = Annotated[ConsoleVisit, Depends(_form_visit)]
# For what needs a login of the last 15 minutes: others are led to the login page and back.
RecentVisit = Annotated[ConsoleVisit, Depends(_recent_visit)]
RecentFormVisit = Annotated[ConsoleVisit, Depends(_recent_form_visit)]
