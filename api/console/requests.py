"""Provides the data of requests for console pages, and builds the responses.

The type of a handler's parameter ``console`` is the access rule of the route, such as
``EditForm``.
"""

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from functools import partial, wraps
from inspect import iscoroutinefunction, signature, unwrap
from typing import Annotated, Any
from urllib.parse import quote, unquote

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from api.auth.interrupted_forms import read_kept_form
from api.auth.member_reads import count_members_page
from api.auth.page_sessions import PageSession, require_login
from api.auth.redirects import redirect_to_path
from api.auth.requirements import PageAccess, get_admitted_session
from api.bodies.page_forms import FormFields, read_page_form
from api.console.assets import CONSOLE_PATH
from api.console.frame import render_console_page, render_console_part
from api.console.navigation import build_navigation
from api.console.typed_forms import TypedForm, build_error_form
from api.cookies import INTERRUPTED_FORM_COOKIE, NOTICE_COOKIE
from api.limits.bulkhead import wrap_in_transaction
from api.limits.bulkheads import RECORDS
from api.limits.keyed_bulkheads import SEARCHES_BY_CALLER
from api.limits.rate_limits import RateLimitName
from api.route_classes import ThreadedRoute
from api.state import State, state_of
from core.errors import DomainError, Kind
from core.errors.mailing import LIST_NOT_FOUND, LIST_NOT_OWNER
from core.ids import AccountId, PersonId
from core.permissions import Permission
from models import MailingList
from services.access import sessions
from services.access.caller import Caller
from services.security_events import is_plan_error, record_plan_error
from services.subscriptions import lists
from storage.unit_of_work import UnitOfWork

MAX_NOTICE_CHARACTERS = 500
RESTORED_FORM_TEXT = "Check the form, then submit it again."
_NO_SOURCES: Mapping[str, str] = {}
_NO_PLACES: Mapping[str, str] = {}
_NO_FORM = TypedForm()


def build_router(prefix: str) -> APIRouter:
    """Return a router for one area. Route handlers that aren't ``async`` run in threads."""
    return APIRouter(prefix=prefix, include_in_schema=False, route_class=ThreadedRoute)


@dataclass(frozen=True)
class ConsoleRequest:
    """A request for a console page by a logged-in user.

    ``form``: the fields of the submitted form, after a check of the CSRF token.
    """

    request: Request
    state: State
    member: PageSession
    form: FormFields = field(default_factory=dict)

    @property
    def caller(self) -> Caller:
        return self.member.caller

    @property
    def account_id(self) -> AccountId:
        return self.member.account_id

    @property
    def person_id(self) -> PersonId:
        return self.member.person_id

    def unit_of_work(self) -> UnitOfWork:
        return self.state.resources.unit_of_work()

    def get_own_list(self, uow: UnitOfWork, list_id: int) -> MailingList:
        """Return a list that the caller owns, or raise ``list.not_found``.

        For another owner's list, the error is the same as for an unknown id, so that nobody learns
        which lists exist.
        """
        try:
            return lists.get_own_list(uow, self.caller, list_id)
        except DomainError as error:
            if error.code != LIST_NOT_OWNER.code:
                raise
            raise LIST_NOT_FOUND() from None

    @staticmethod
    def find_open_list(uow: UnitOfWork, list_id: int) -> MailingList | None:
        """Return the list of the caller's import or export, or ``None`` for an archived list.

        An archived list has no pages that the menus could show.
        """
        mailing_list = lists.get_list(uow, list_id, archived=True)
        return mailing_list if mailing_list.archived_at is None else None

    def count_members_page(self, uow: UnitOfWork) -> None:
        """Count a page that shows members' addresses, because the session may be stolen.

        The page is counted after the commit, so that no connection waits for Redis.
        """
        uow.after_commit(partial(count_members_page, self.state, self.caller))

    def get_media_sources(self) -> dict[str, str]:
        """Return the Content-Security-Policy directive that allows images from object storage."""
        scheme, _, rest = self.state.resources.settings.media_base.partition("://")
        return {"img-src": f"{scheme}://{rest.partition('/')[0]}"}

    def render_page(
        self,
        template: str,
        form: TypedForm = _NO_FORM,
        *,
        other_sources: Mapping[str, str] = _NO_SOURCES,
        **values: Any,
    ) -> Response:
        """Render a page of the console, and show the notice from the cookie.

        A page of a list gets the list as ``list``, so that the menus show its pages. The page of a
        restored form deletes the form's cookie.
        """
        cookies = self.state.cookies
        cookie = cookies.read(self.request, NOTICE_COOKIE)
        notice = unquote(cookie)[:MAX_NOTICE_CHARACTERS] if cookie else None
        if form.is_restored:
            notice = RESTORED_FORM_TEXT
        frame_values = self._build_frame_values(values.get("list"))
        page_values = {**frame_values, "notice": notice, "form": form, **values}
        response = render_console_page(
            template, page_values, status=form.status, other_sources=other_sources
        )
        if cookie:
            cookies.delete(response, NOTICE_COOKIE)
        if form.is_restored:
            cookies.delete(response, INTERRUPTED_FORM_COOKIE)
        return response

    def render_part(self, template: str, **values: Any) -> str:
        """Return the HTML of a part of a page, which a script inserts into the page."""
        return render_console_part(template, {**self._build_frame_values(), **values})

    def _build_frame_values(self, current_list: Any = None) -> dict[str, Any]:
        resources = self.state.resources
        path = self.request.scope["path"]
        return {
            "base": resources.settings.public_base,
            "pages": resources.settings.pages_base,
            "console": f"{resources.settings.public_base}{CONSOLE_PATH}",
            "docs_url": resources.settings.docs_url,
            "csrf_token": sessions.create_csrf_token(resources.keyring, self.member.cookie),
            "path": path,
            # The first page of a table has no ``cursor``.
            "cursor": self.request.query_params.get("cursor"),
            "navigation": None
            if self.member.lacks_factor
            else build_navigation(
                path,
                current_list.id if current_list else None,
                is_operator=self.member.is_operator,
            ),
        }

    def add_error(self, error: DomainError, places: Mapping[str, str] = _NO_PLACES) -> TypedForm:
        """Return the submitted form with an error message, or raise an error that no form shows."""
        if is_plan_error(error.code):
            # If the user has reached a limit of the plan, record an event, as the API does.
            with self.unit_of_work() as uow:
                record_plan_error(uow, self.account_id, error.code)
        return TypedForm(self.form).add_error(error, places)

    def redirect(self, path: str, notice: str = "") -> Response:
        """Redirect to a page, so that reloading it doesn't repeat the user's action.

        ``notice``: a sentence that the page shows once.
        """
        response = redirect_to_path(self.state, path)
        if notice:
            # Percent-encode the notice, because a cookie can't contain spaces or non-ASCII letters.
            self.state.cookies.set(response, NOTICE_COOKIE, quote(notice[:MAX_NOTICE_CHARACTERS]))
        return response


def threaded_as_search(
    handler: Callable[..., Response],
) -> Callable[..., Coroutine[Any, Any, Response]]:
    """Run a handler in one of the few threads that each user has for searches."""

    @wraps(handler)
    async def in_thread(*, console: ConsoleRequest, **parameters: Any) -> Response:
        work = wrap_in_transaction(handler)
        return await SEARCHES_BY_CALLER.run(console.account_id, work, console=console, **parameters)

    return in_thread


def shows_errors_on(
    page: Callable[..., Any],
    places: Mapping[str, str] = _NO_PLACES,
    *,
    kinds: tuple[Kind, ...] = (),
    keeps_input: bool = True,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make the handler of a form show its errors on ``page``, in a new transaction.

    ``page`` gets those parameters of the handler that it declares, and the form with the error.

    Args:
        places: maps an error code to the form field that shows the error.
        kinds: the kinds of errors that an account page shows, without the submitted values.
        keeps_input: whether the page shows the submitted values again.
    """
    render = unwrap(page)
    names = signature(render).parameters.keys()

    def show_error(
        error: DomainError,
        *,
        console: ConsoleRequest,
        uow: UnitOfWork | None = None,
        **parameters: Any,
    ) -> Any:
        if uow is not None:
            uow.roll_back()
        form = build_error_form(error, *kinds) if kinds else console.add_error(error, places)
        if not keeps_input:
            form = TypedForm(problem=form.problem, status=form.status)
        values = {**parameters, "console": console, "uow": uow, "form": form}
        return render(**{name: value for name, value in values.items() if name in names})

    def decorate(handler: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(handler)
        def handle(**parameters: Any) -> Any:
            try:
                return handler(**parameters)
            except DomainError as error:
                return show_error(error, **parameters)

        @wraps(handler)
        async def handle_async(*, console: ConsoleRequest, **parameters: Any) -> Any:
            try:
                return await handler(console=console, **parameters)
            except DomainError as error:
                parameters["uow"] = console.unit_of_work()
                work = wrap_in_transaction(show_error)
                return await RECORDS.run(work, error, console=console, **parameters)

        return handle_async if iscoroutinefunction(handler) else handle

    return decorate


class ConsoleAccess(PageAccess):
    async def __call__(self, request: Request) -> ConsoleRequest:
        session = await super().__call__(request)
        form = await read_page_form(request) if self.is_form else {}
        return ConsoleRequest(request, state_of(request), session, form)


async def _empty_form(request: Request) -> TypedForm:
    session = get_admitted_session(request)
    if session is None or request.method == "POST":
        return TypedForm()
    fields = read_kept_form(request, state_of(request), session.caller)
    return TypedForm() if fields is None else TypedForm(fields, is_restored=True)


# The form argument of a GET handler. The form is empty when a browser loads the page, unless the
# browser comes from a login that this form required. After an error, ``shows_errors_on`` calls the
# GET handler with the submitted form.
EmptyForm = Annotated[TypedForm, Depends(_empty_form)]

# The access rules of pages and forms, each as the type of the handler's parameter ``console``. The
# areas of the console define the rules that no other area needs.
#
# "Recent" rules redirect users to the login page unless they logged in within the last 15 minutes.
FiguresPage = Annotated[ConsoleRequest, Depends(ConsoleAccess(permission=Permission.FIGURES))]
MembersPage = Annotated[ConsoleRequest, Depends(ConsoleAccess(permission=Permission.MEMBERS))]
EditPage = Annotated[ConsoleRequest, Depends(ConsoleAccess(permission=Permission.EDIT))]
EditForm = Annotated[
    ConsoleRequest, Depends(ConsoleAccess(permission=Permission.EDIT, is_form=True))
]
AccessPage = Annotated[ConsoleRequest, Depends(ConsoleAccess(permission=Permission.ACCESS))]
AccessForm = Annotated[
    ConsoleRequest, Depends(ConsoleAccess(permission=Permission.ACCESS, is_form=True))
]
RecentAccessPage = Annotated[
    ConsoleRequest, Depends(ConsoleAccess(permission=Permission.ACCESS, is_recent=True))
]
RecentAccessForm = Annotated[
    ConsoleRequest,
    Depends(ConsoleAccess(permission=Permission.ACCESS, is_form=True, is_recent=True)),
]
# Requests about the user as a person, which need no permission in the account.
PersonPage = Annotated[ConsoleRequest, Depends(ConsoleAccess(permission=None))]
PersonForm = Annotated[ConsoleRequest, Depends(ConsoleAccess(permission=None, is_form=True))]
RecentPersonPage = Annotated[
    ConsoleRequest, Depends(ConsoleAccess(permission=None, is_recent=True))
]
RecentPersonForm = Annotated[
    ConsoleRequest, Depends(ConsoleAccess(permission=None, is_form=True, is_recent=True))
]
# Requests that are allowed before the user has set up a required second factor.
StarterPage = Annotated[
    ConsoleRequest, Depends(ConsoleAccess(permission=None, check=require_login))
]
RecentStarterPage = Annotated[
    ConsoleRequest, Depends(ConsoleAccess(permission=None, check=require_login, is_recent=True))
]
RecentStarterForm = Annotated[
    ConsoleRequest,
    Depends(ConsoleAccess(permission=None, check=require_login, is_form=True, is_recent=True)),
]
# Forms with which a thief of a session could guess the password or a code.
LoginLimitedForm = Annotated[
    ConsoleRequest,
    Depends(
        ConsoleAccess(permission=None, is_form=True, is_recent=True, stranger=RateLimitName.LOGIN)
    ),
]
LoginLimitedStarterForm = Annotated[
    ConsoleRequest,
    Depends(
        ConsoleAccess(
            permission=None,
            check=require_login,
            is_form=True,
            is_recent=True,
            stranger=RateLimitName.LOGIN,
        )
    ),
]
