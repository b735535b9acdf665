"""Identifies who makes a request, by a trace id or by credentials.

Links in mails contain a trace id, which identifies the recipient of the mail.
"""

from dataclasses import dataclass, replace

from fastapi import Request

from api.auth.csrf import CSRF_FIELD
from api.auth.identification import count_anonymous, count_trace, identify_and_count
from api.bodies.form_or_json import FormOrJsonBody
from api.client_details import browser_name, client_address, referring_page
from api.limits.rate_limits import RateLimitName
from api.state import State
from core.errors import access, mailing
from core.ids import PersonId
from core.scopes import Scope
from models import MailingList, User
from services.access.caller import Caller, require_scope
from services.accounts import accounts
from services.subscriptions.members import traces
from services.subscriptions.members.changes import Actor, ActorKind, Via
from services.subscriptions.members.traces import Trace
from storage.unit_of_work import UnitOfWork


@dataclass(frozen=True)
class Principal:
    """The person who makes a request.

    ``trace`` is ``None`` if credentials identified the person. A trace id is valid for a single
    mailing list.
    """

    person_id: PersonId
    via: Via
    trace: Trace | None

    def get_person(self, uow: UnitOfWork, mailing_list: MailingList) -> User:
        self._require_list_of_trace(mailing_list)
        if self.trace and traces.can_only_leave(mailing_list, self.trace):
            raise mailing.TRACE_INVALID()
        return accounts.get_user(uow, self.person_id)

    def find_person(self, uow: UnitOfWork, mailing_list: MailingList) -> User | None:
        """Return the user who unsubscribes, or ``None`` if the user was deleted. A revoked or
        limited trace id is accepted, because everyone must be able to unsubscribe.
        """
        self._require_list_of_trace(mailing_list)
        return accounts.find_user(uow, self.person_id)

    def _require_list_of_trace(self, mailing_list: MailingList) -> None:
        if self.trace and self.trace.list_id != mailing_list.id:
            raise mailing.TRACE_INVALID()


def identify_principal(
    request: Request, state: State, submission: FormOrJsonBody, scope: Scope
) -> Principal:
    """Credentials are ignored if the request has a trace id."""
    if submission.trace_id is not None:
        if not count_trace(request, submission.trace_id):
            count_anonymous(request, RateLimitName.ANONYMOUS)
        trace = traces.read_trace_id(state.resources.keyring, submission.trace_id)
        via = Via.ONE_CLICK if submission.is_one_click else Via.TRACE
        return Principal(trace.user_id, via, trace)
    csrf_token = submission.fields.get(CSRF_FIELD)
    caller = identify_and_count(request, csrf_token=csrf_token, about_person=True)
    if caller is None:
        raise access.AUTH_CREDENTIALS_OR_TRACE_MISSING()
    require_scope(caller, scope)
    return Principal(caller.person_id, Via.LOGIN, None)


def require_trace(state: State, submission: FormOrJsonBody) -> Trace:
    if submission.trace_id is None:
        raise mailing.TRACE_MISSING()
    return traces.read_trace_id(state.resources.keyring, submission.trace_id)


def build_principal_actor(request: Request, principal: Principal) -> Actor:
    actor = build_actor(request, ActorKind.USER, principal.via, principal.person_id)
    # Old trace ids contain the delivery number 0.
    delivery = principal.trace.delivery if principal.trace else 0
    return replace(actor, mailing_id=delivery or None)


def build_owner_actor(request: Request, caller: Caller) -> Actor:
    return build_actor(request, ActorKind.OWNER, Via.LOGIN, caller.account_id)


def build_actor(request: Request, kind: ActorKind, via: Via, user_id: int | None) -> Actor:
    return Actor(
        kind,
        via,
        user_id,
        ip=client_address(request),
        page_url=referring_page(request),
        browser=browser_name(request.headers.get("user-agent")),
    )
