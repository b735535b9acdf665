"""The pages on which a person says whether a list may record opens and clicks.

The person opens the page with the trace id in a mail, or on the preferences page. Opening it
changes nothing, because mail scanners open links.
"""

from functools import partial
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request, Response

from api.auth.actors import Principal, require_trace
from api.auth.engagement import store_answer
from api.auth.requirements import MAIL_LINK, PUBLIC
from api.bodies.form_or_json import FormOrJsonBodyOf
from api.bodies.page_forms import FormOf
from api.html.frame import redirect_to, redirect_to_query, render_list_page
from api.html.problems import get_reader_language
from api.limits.bulkheads import LEAVING
from api.limits.keyed_bulkheads import CHANGES_BY_LIST
from api.pages.preferences.visits import find_visit, render_visit_page, require_visit_form
from api.record_ids import PathId
from api.route_classes import ThreadedRoute
from api.state import State, StateOf, Transaction
from core.errors import requests
from models import MailingList, User
from services.accounts import accounts
from services.engagement.answers import find_answers
from services.subscriptions import branding, lists, page_urls
from services.subscriptions.members import engagement_choices, traces
from services.subscriptions.members.changes import Via
from services.subscriptions.preferences import own_lists
from storage.unit_of_work import UnitOfWork

router = APIRouter(include_in_schema=False, route_class=ThreadedRoute)
ListQuery = Annotated[PathId, Query(alias="list")]

_YES = "yes"
_NO = "no"


@router.get(page_urls.ENGAGEMENT_PATH, dependencies=[MAIL_LINK])
def show_question(
    request: Request, state: StateOf, uow: Transaction, submission: FormOrJsonBodyOf
) -> Response:
    trace = require_trace(state, submission)
    mailing_list = lists.get_list(uow, trace.list_id, archived=True)
    is_revoked = traces.is_revoked(mailing_list, trace.delivery)
    person = accounts.find_user(uow, trace.user_id)
    return render_list_page(
        "engagement.html",
        branding.read_look(uow, mailing_list),
        language=get_reader_language(request),
        list_title=mailing_list.title,
        can_allow=not traces.can_only_leave(mailing_list, trace),
        is_hidden=is_revoked,
        is_visit=False,
        csrf_token=None,
        **_describe(request, uow, mailing_list, None if is_revoked else person),
    )


@router.post(page_urls.ENGAGEMENT_PATH, dependencies=[MAIL_LINK])
async def answer_question(
    request: Request, state: StateOf, submission: FormOrJsonBodyOf
) -> Response:
    trace = require_trace(state, submission)
    principal = Principal(trace.user_id, Via.PAGE, trace)
    action = submission.fields.get("action")
    await _store_answer(request, state, trace.list_id, principal, action)
    return redirect_to_query(urlencode({"trace_id": submission.trace_id}))


@router.get(page_urls.VISIT_ENGAGEMENT_PATH, dependencies=[PUBLIC])
def show_question_to_visitor(
    request: Request, state: StateOf, uow: Transaction, list_id: ListQuery
) -> Response:
    visit = find_visit(uow, request, state)
    mailing_list, _ = own_lists.find_list(uow, visit, list_id)
    return render_visit_page(
        request,
        state,
        branding.read_look(uow, mailing_list),
        "engagement.html",
        list_title=mailing_list.title,
        can_allow=True,
        is_hidden=False,
        is_visit=True,
        **_describe(request, uow, mailing_list, visit.person),
    )


@router.post(page_urls.VISIT_ENGAGEMENT_PATH, dependencies=[PUBLIC])
async def answer_question_as_visitor(
    request: Request, state: StateOf, list_id: ListQuery, form: FormOf
) -> Response:
    require_visit_form(request, state, form)

    def find_visitor(uow: UnitOfWork) -> Principal:
        visit = find_visit(uow, request, state)
        own_lists.find_list(uow, visit, list_id)
        return Principal(visit.person.id, Via.PAGE, None)

    principal = await LEAVING.run(state.transact, find_visitor)
    await _store_answer(request, state, list_id, principal, form.get("action"))
    path = f"{state.resources.settings.pages_base}{page_urls.VISIT_ENGAGEMENT_PATH}"
    return redirect_to(f"{path}?list={list_id}")


def _describe(
    request: Request, uow: UnitOfWork, mailing_list: MailingList, person: User | None
) -> dict[str, Any]:
    pair = (mailing_list.id, 0 if person is None else person.id)
    answer = find_answers(uow, [pair]).get(pair)
    return {
        "wording": engagement_choices.get_wording(mailing_list, get_reader_language(request)),
        "mode": mailing_list.engagement,
        "answer": answer and (_YES if answer.is_allowed else _NO),
        "slug": mailing_list.slug,
    }


async def _store_answer(
    request: Request, state: State, list_id: int, principal: Principal, action: object
) -> None:
    if action not in (_YES, _NO):
        raise requests.BODY_INVALID(place="body.action", rule=f"must be one of {_YES}, {_NO}")
    store = partial(store_answer, request, state, list_id, principal, is_allowed=action == _YES)
    await (CHANGES_BY_LIST.run(list_id, store) if action == _YES else LEAVING.run(store))
