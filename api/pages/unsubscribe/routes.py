"""The pages to which mails link. Opening a page changes nothing, since scanners follow links;
pressing a button does.

The link itself acts for the person to whom it was mailed: cookies and credentials are ignored.
"""

from dataclasses import replace
from functools import partial
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request, Response

from api.auth import actors
from api.auth.actors import Principal
from api.auth.requirements import BY_LINK
from api.bodies.forms import FormOrJsonBody, FormOrJsonBodyOf
from api.bodies.json_bodies import ThreadedRoute
from api.html.frame import list_page, see_other, short_answer
from api.html.problems import reader_language
from api.limits.bulkheads import ACTS_BY_LIST, LEAVING
from api.pages.preferences.words import OPT_OUTS, REASONS, RETURNS, shown_reasons, unknown_action
from api.parameters import StateOf, Transaction
from api.state import State
from core.errors import mailing, people
from core.languages.reader_languages import marked, translated
from models import MailingList, OptOutKind, User
from services.accounts import accounts, email_addresses
from services.subscriptions import branding, lists, page_urls, sign_up
from services.subscriptions.consent import wordings
from services.subscriptions.members import members, traces, unsubscribe
from services.subscriptions.members.changes import Actor, Via

router = APIRouter(dependencies=[BY_LINK], include_in_schema=False, route_class=ThreadedRoute)


@router.get(page_urls.UNSUBSCRIBE_PATH)
def show_subscription(
    request: Request, state: StateOf, uow: Transaction, submission: FormOrJsonBodyOf
) -> Response:
    trace, language = _trace(state, submission), reader_language(request)
    mailing_list = lists.get(uow, trace.list_id, archived=True)
    person = accounts.find(uow, trace.user_id)
    subscription = members.read(uow, mailing_list, person)
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
        address=_masked(subscription.email),
        trace_query=urlencode({"trace_id": submission.trace_id}),
        reasons=shown_reasons(language),
        asks_more=person is not None and person.erased_at is None and not is_revoked,
    )


@router.post(page_urls.UNSUBSCRIBE_PATH)
async def change_subscription(
    request: Request, state: StateOf, submission: FormOrJsonBodyOf
) -> Response:
    """Do the action of the button; a mail client's one click (RFC 8058) stops the mail.

    The answer to one click is no redirect: the RFC forbids that.
    """
    trace = _trace(state, submission)
    if submission.is_one_click:
        await LEAVING.run(_leave, request, state, trace, OptOutKind.EMAIL, Via.ONE_CLICK)
        text = marked("You get no more e-mails from this list.")
        return short_answer(translated(reader_language(request), text))
    action = submission.fields.get("action")
    if isinstance(action, str) and action in OPT_OUTS:
        sent = submission.fields.get("reason")
        reason = sent if isinstance(sent, str) and sent in REASONS else None
        await LEAVING.run(_leave, request, state, trace, OPT_OUTS[action], Via.PAGE, reason)
    elif isinstance(action, str) and action in RETURNS:
        await ACTS_BY_LIST.run(trace.list_id, _return, request, state, trace, action)
    else:
        raise unknown_action()
    return see_other(urlencode({"trace_id": submission.trace_id}))


@router.get(page_urls.REPORT_PATH)
def show_report(
    request: Request, state: StateOf, uow: Transaction, submission: FormOrJsonBodyOf
) -> Response:
    trace = _trace(state, submission)
    mailing_list = lists.get(uow, trace.list_id, archived=True)
    person = accounts.get(uow, trace.user_id)
    subscription = members.read(uow, mailing_list, person)
    return list_page(
        "report.html",
        branding.read_look(uow, mailing_list),
        language=reader_language(request),
        list_title=mailing_list.title,
        is_reported=lists.is_reported(uow, mailing_list, person),
        address=_masked(subscription.email),
    )


@router.post(page_urls.REPORT_PATH)
@LEAVING.threaded
def report_list(request: Request, state: StateOf, submission: FormOrJsonBodyOf) -> Response:
    trace = _trace(state, submission)
    mailing_list, person, actor = _of_trace(request, state, trace, Via.PAGE)
    if person is not None:
        lists.report(state.resources, mailing_list, person, actor)
    return see_other(urlencode({"trace_id": submission.trace_id}))


def _trace(state: State, submission: FormOrJsonBody) -> traces.Trace:
    if submission.trace_id is None:
        raise mailing.TRACE_MISSING()
    return traces.read(state.resources.keyring, submission.trace_id)


def _leave(
    request: Request,
    state: State,
    trace: traces.Trace,
    kind: OptOutKind,
    via: Via,
    reason: str | None = None,
) -> None:
    mailing_list, person, actor = _of_trace(request, state, trace, via)
    if person is not None:
        actor = replace(actor, reason=reason)
        unsubscribe.opt_out(state.resources, mailing_list, person, kind, actor)


def _of_trace(
    request: Request, state: State, trace: traces.Trace, via: Via
) -> tuple[MailingList, User | None, Actor]:
    """Return the list, also an archived one, the person and the actor.

    The person is ``None`` if nothing of them is left: there is nothing to change.
    """
    with state.resources.unit_of_work() as uow:
        mailing_list = lists.get(uow, trace.list_id, archived=True)
        person = accounts.find(uow, trace.user_id)
    actor = actors.actor_of_principal(request, Principal(trace.user_id, via, trace))
    return mailing_list, person, actor


def _return(request: Request, state: State, trace: traces.Trace, action: str) -> None:
    principal = Principal(trace.user_id, Via.PAGE, trace)
    actor = actors.actor_of_principal(request, principal)
    with state.resources.unit_of_work() as uow:
        # A person can leave an archived list, but not join it.
        mailing_list = lists.get(uow, trace.list_id)
        person = principal.person(uow, mailing_list)
        RETURNS[action](uow, mailing_list, person, actor)


@router.get(page_urls.CONFIRM_PATH)
def show_confirmation(
    request: Request, uow: Transaction, token: Annotated[str | None, Query()] = None
) -> Response:
    found = sign_up.read_confirmation(uow, _secret(token))
    mailing_list = found.mailing_list
    return list_page(
        "confirm.html",
        branding.read_look(uow, mailing_list),
        language=reader_language(request),
        list_title=mailing_list.title,
        wording=wordings.current_wordings(uow, [mailing_list]).get(mailing_list.id),
        is_confirmed=found.is_confirmed,
        wants_mail=found.record.email_enabled,
        words=mailing_list.thanks_text,
        address=_masked(found.record.email),
    )


@router.post(page_urls.CONFIRM_PATH)
async def confirm_subscription(
    request: Request,
    state: StateOf,
    submission: FormOrJsonBodyOf,
    token: Annotated[str | None, Query()] = None,
) -> Response:
    secret = _secret(token, submission.fields.get("token"))
    found = await state.in_unit_of_work(sign_up.read_confirmation, secret)
    list_id = found.mailing_list.id
    principal = Principal(found.record.user_id, Via.CONFIRMATION, None)
    actor = actors.actor_of_principal(request, principal)
    confirm = partial(sign_up.confirm, secret=secret, actor=actor)
    await ACTS_BY_LIST.run(list_id, state.transact, confirm)
    return see_other(urlencode({"token": secret}))


def _secret(*sent: object) -> str:
    """Return the one token of the request; raises for none, and for two that differ."""
    found = {each for each in sent if isinstance(each, str) and each}
    if not found:
        raise people.LINK_MISSING()
    if len(found) > 1:
        raise people.LINK_AMBIGUOUS()
    return found.pop()


def _masked(email: str | None) -> str | None:
    return None if email is None else email_addresses.masked(email)
