"""Pages on which a person reports a list for abuse.

Every mail of a list links to a report page, and the link identifies the recipient. People who have
no mail from the list can reach a report page from the list's sign-up page. A list is reported only
when a person presses the button, because mail scanners open links.
"""

from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request, Response

from api.auth import actors
from api.auth.actors import Principal, require_trace
from api.auth.csrf import obtain_form_cookie, require_form_csrf
from api.auth.requirements import MAIL_LINK, PUBLIC
from api.bodies.form_or_json import FormOrJsonBodyOf
from api.bodies.page_forms import FormOf
from api.client_details import client_address
from api.cookies import FORM_COOKIE
from api.html.frame import redirect_to_query, render_list_page
from api.html.problems import get_reader_language
from api.limits.bulkheads import LEAVING
from api.record_ids import find_list
from api.route_classes import ThreadedRoute
from api.state import StateOf, Transaction
from services.access import sessions
from services.accounts import accounts, email_addresses, unsolicited_mail
from services.subscriptions import branding, list_reports, lists, page_urls
from services.subscriptions.members import person_subscriptions
from services.subscriptions.members.changes import Via

router = APIRouter(include_in_schema=False, route_class=ThreadedRoute)


@router.get(page_urls.REPORT_PATH, dependencies=[MAIL_LINK])
def show_report(
    request: Request, state: StateOf, uow: Transaction, submission: FormOrJsonBodyOf
) -> Response:
    trace = require_trace(state, submission)
    mailing_list = lists.get_list(uow, trace.list_id, archived=True)
    person = accounts.get_user(uow, trace.user_id)
    address = person_subscriptions.read_own_subscription(uow, mailing_list, person).email
    return render_list_page(
        "report.html",
        branding.read_look(uow, mailing_list),
        language=get_reader_language(request),
        list_title=mailing_list.title,
        is_reported=list_reports.is_reported(uow, mailing_list, person),
        address=None if address is None else email_addresses.mask_address(address),
    )


@router.post(page_urls.REPORT_PATH, dependencies=[MAIL_LINK])
@LEAVING.threaded
def report_list(request: Request, state: StateOf, submission: FormOrJsonBodyOf) -> Response:
    trace = require_trace(state, submission)
    principal = Principal(trace.user_id, Via.PAGE, trace)
    with state.resources.unit_of_work() as uow:
        mailing_list = lists.get_list(uow, trace.list_id, archived=True)
        person = principal.find_person(uow, mailing_list)
    if person is not None:
        actor = actors.build_principal_actor(request, principal)
        list_reports.report_list(state.resources, mailing_list, person, actor)
    return redirect_to_query(urlencode({"trace_id": submission.trace_id}))


@router.get(page_urls.REPORT_PAGE_PATH, dependencies=[PUBLIC])
def show_page_report(
    request: Request,
    state: StateOf,
    uow: Transaction,
    slug: str,
    sent: Annotated[str | None, Query()] = None,
) -> Response:
    mailing_list = find_list(uow, slug)
    form_cookie = obtain_form_cookie(request, state)
    response = render_list_page(
        "report_page.html",
        branding.read_look(uow, mailing_list),
        language=get_reader_language(request),
        list_title=mailing_list.title,
        is_reported=sent is not None,
        csrf_token=sessions.create_csrf_token(state.resources.keyring, form_cookie),
    )
    state.cookies.set(response, FORM_COOKIE, form_cookie)
    return response


@router.post(page_urls.REPORT_PAGE_PATH, dependencies=[PUBLIC])
def report_page(
    request: Request, state: StateOf, uow: Transaction, slug: str, form: FormOf
) -> Response:
    # Without a CSRF check, another site could make its visitors report a list.
    require_form_csrf(request, state, form)
    mailing_list = find_list(uow, slug)
    network = unsolicited_mail.source_digest(state.resources.keyring, client_address(request))
    list_reports.report_page(uow, mailing_list, network or b"")
    return redirect_to_query(urlencode({"sent": "yes"}))
