"""The page on which a person unsubscribes from a list, or subscribes again.

Opening the unsubscribe link changes nothing, because mail scanners open links. Cookies and
credentials are ignored, because the link identifies the recipient.
"""

from dataclasses import replace
from urllib.parse import urlencode

from fastapi import APIRouter, Request, Response

from api.auth import actors
from api.auth.actors import Principal, require_trace
from api.auth.requirements import MAIL_LINK
from api.bodies.form_or_json import FormOrJsonBodyOf
from api.html.frame import redirect_to_query, render_line, render_list_page
from api.html.problems import get_reader_language
from api.limits.bulkheads import LEAVING
from api.limits.keyed_bulkheads import CHANGES_BY_LIST
from api.pages.preferences.actions import (
    LIFT_OPT_OUT,
    OPT_OUTS,
    REASONS,
    build_unknown_action_error,
    translate_reasons,
)
from api.route_classes import ThreadedRoute
from api.state import State, StateOf, Transaction
from core.languages.reader_languages import marked, translate
from models import OptOutKind
from services.accounts import accounts, email_addresses
from services.subscriptions import branding, lists, page_urls
from services.subscriptions.members import person_subscriptions, traces, unsubscribe
from services.subscriptions.members.changes import Via

router = APIRouter(dependencies=[MAIL_LINK], include_in_schema=False, route_class=ThreadedRoute)


@router.get(page_urls.UNSUBSCRIBE_PATH)
def show_subscription(
    request: Request, state: StateOf, uow: Transaction, submission: FormOrJsonBodyOf
) -> Response:
    trace = require_trace(state, submission)
    language = get_reader_language(request)
    mailing_list = lists.get_list(uow, trace.list_id, archived=True)
    person = accounts.find_user(uow, trace.user_id)
    subscription = person_subscriptions.read_own_subscription(uow, mailing_list, person)
    is_revoked = traces.is_revoked(mailing_list, trace.delivery)
    if is_revoked:
        subscription = person_subscriptions.hide_personal_state(subscription)
    is_open = mailing_list.archived_at is None
    only_leaves = traces.can_only_leave(mailing_list, trace)
    return render_list_page(
        "unsubscribe.html",
        branding.read_look(uow, mailing_list),
        language=language,
        list_title=mailing_list.title,
        mode=mailing_list.engagement,
        is_open=is_open,
        can_leave=person is not None,
        can_return=is_open and not only_leaves,
        can_sign_up=is_open and trace.is_limited,
        slug=mailing_list.slug,
        subscription=subscription,
        address=None
        if subscription.email is None
        else email_addresses.mask_address(subscription.email),
        trace_query=urlencode({"trace_id": submission.trace_id}),
        reasons=translate_reasons(language),
        asks_more=person is not None and person.erased_at is None and not is_revoked,
        is_limited=trace.is_limited,
    )


@router.post(page_urls.UNSUBSCRIBE_PATH)
async def change_subscription(
    request: Request, state: StateOf, submission: FormOrJsonBodyOf
) -> Response:
    """A mail client can stop the list's mail with a one-click request (RFC 8058), without showing
    the page. The response to a one-click request is plain text, because RFC 8058 forbids a
    redirect.
    """
    trace = require_trace(state, submission)
    if submission.is_one_click:
        await LEAVING.run(_unsubscribe, request, state, trace, OptOutKind.EMAIL, Via.ONE_CLICK)
        text = marked("You get no more e-mails from this list.")
        return render_line(translate(get_reader_language(request), text))
    action = submission.fields.get("action")
    if isinstance(action, str) and action in OPT_OUTS:
        reason = submission.fields.get("reason")
        if not isinstance(reason, str) or reason not in REASONS:
            reason = None
        await LEAVING.run(_unsubscribe, request, state, trace, OPT_OUTS[action], Via.PAGE, reason)
    elif isinstance(action, str) and action in LIFT_OPT_OUT:
        await CHANGES_BY_LIST.run(trace.list_id, _subscribe_again, request, state, trace, action)
    else:
        raise build_unknown_action_error()
    return redirect_to_query(urlencode({"trace_id": submission.trace_id}))


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
        actor = replace(actors.build_principal_actor(request, principal), reason=reason)
        unsubscribe.opt_out(state.resources, mailing_list, person, kind, actor)


def _subscribe_again(request: Request, state: State, trace: traces.Trace, action: str) -> None:
    principal = Principal(trace.user_id, Via.PAGE, trace)
    actor = actors.build_principal_actor(request, principal)
    with state.resources.unit_of_work() as uow:
        # ``get_list`` raises an error for an archived list, because archived lists accept no
        # members.
        mailing_list = lists.get_list(uow, trace.list_id)
        person = principal.get_person(uow, mailing_list)
        LIFT_OPT_OUT[action](uow, mailing_list, person, actor)
