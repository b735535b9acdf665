"""The page on which a person unsubscribes from a list, and subscribes again.

Mails link to the page. Opening it changes nothing, because scanners follow links. The buttons
change the subscription. The link acts for the mail's recipient, so cookies and credentials are
ignored.
"""

from dataclasses import replace
from urllib.parse import urlencode

from fastapi import APIRouter, Request, Response

from api.auth import actors
from api.auth.actors import Principal, require_trace
from api.auth.requirements import BY_LINK
from api.bodies.form_or_json import FormOrJsonBodyOf
from api.html.frame import list_page, see_other, short_answer
from api.html.problems import reader_language
from api.limits.bulkheads import LEAVING
from api.limits.shares import ACTS_BY_LIST
from api.pages.preferences.actions import (
    OPT_OUTS,
    REASONS,
    RETURNS,
    translate_reasons,
    unknown_action_error,
)
from api.route_classes import ThreadedRoute
from api.state import State, StateOf, Transaction
from core.languages.reader_languages import marked, translated
from models import OptOutKind
from services.accounts import accounts, email_addresses
from services.subscriptions import branding, lists, page_urls
from services.subscriptions.members import members, traces, unsubscribe
from services.subscriptions.members.changes import Via

router = APIRouter(dependencies=[BY_LINK], include_in_schema=False, route_class=ThreadedRoute)


@router.get(page_urls.UNSUBSCRIBE_PATH)
def show_subscription(
    request: Request, state: StateOf, uow: Transaction, submission: FormOrJsonBodyOf
) -> Response:
    trace = require_trace(state, submission)
    language = reader_language(request)
    mailing_list = lists.get_list(uow, trace.list_id, archived=True)
    person = accounts.find_user(uow, trace.user_id)
    subscription = members.read_own_subscription(uow, mailing_list, person)
    is_revoked = traces.is_revoked(mailing_list, trace.delivery)
    if is_revoked:
        subscription = members.without_what_identifies(subscription)
    is_open = mailing_list.archived_at is None
    return list_page(
        "unsubscribe.html",
        branding.read_look(uow, mailing_list),
        language=language,
        list_title=mailing_list.title,
        is_open=is_open,
        can_leave=person is not None,
        can_return=is_open and not is_revoked,
        own=subscription,
        address=None
        if subscription.email is None
        else email_addresses.mask_address(subscription.email),
        trace_query=urlencode({"trace_id": submission.trace_id}),
        reasons=translate_reasons(language),
        asks_more=person is not None and person.erased_at is None and not is_revoked,
    )


@router.post(page_urls.UNSUBSCRIBE_PATH)
async def change_subscription(
    request: Request, state: StateOf, submission: FormOrJsonBodyOf
) -> Response:
    """Do the action of the button. A mail client's one click (RFC 8058) stops the mail.

    The response to one click is text, because RFC 8058 forbids a redirect.
    """
    trace = require_trace(state, submission)
    if submission.is_one_click:
        await LEAVING.run(_unsubscribe, request, state, trace, OptOutKind.EMAIL, Via.ONE_CLICK)
        text = marked("You get no more e-mails from this list.")
        return short_answer(translated(reader_language(request), text))
    action = submission.fields.get("action")
    if isinstance(action, str) and action in OPT_OUTS:
        reason = submission.fields.get("reason")
        if not isinstance(reason, str) or reason not in REASONS:
            reason = None
        await LEAVING.run(_unsubscribe, request, state, trace, OPT_OUTS[action], Via.PAGE, reason)
    elif isinstance(action, str) and action in RETURNS:
        await ACTS_BY_LIST.run(trace.list_id, _subscribe_again, request, state, trace, action)
    else:
        raise unknown_action_error()
    return see_other(urlencode({"trace_id": submission.trace_id}))


def _unsubscribe(
    request: Request,
    state: State,
    trace: traces.Trace,
    kind: OptOutKind,
    via: Via,
    reason: str | None = None,
) -> None:
    principal = Principal(trace.user_id, via, trace)
    with state.resources.unit_of_work() as uow:
        mailing_list = lists.get_list(uow, trace.list_id, archived=True)
        person = principal.find_person(uow, mailing_list)
    if person is not None:
        actor = replace(actors.actor_of_principal(request, principal), reason=reason)
        unsubscribe.opt_out(state.resources, mailing_list, person, kind, actor)


def _subscribe_again(request: Request, state: State, trace: traces.Trace, action: str) -> None:
    principal = Principal(trace.user_id, Via.PAGE, trace)
    actor = actors.actor_of_principal(request, principal)
    with state.resources.unit_of_work() as uow:
        # A person can leave an archived list, but not join it.
        mailing_list = lists.get_list(uow, trace.list_id)
        person = principal.get_person(uow, mailing_list)
        RETURNS[action](uow, mailing_list, person, actor)
