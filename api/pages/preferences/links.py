"""Pages on which a reader requests a link to the preferences, and starts or ends a session.

A trace id doesn't open the preferences, because people forward mails. With a trace id, a reader can
only request a mail with a link to the preferences. The preferences session starts when the reader
presses a button on the page behind the mailed link, because mail scanners open links.
"""

from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request, Response

from api.auth.csrf import require_form_csrf
from api.auth.form_pages import render_anonymous_page
from api.auth.requirements import LOGIN, PUBLIC
from api.bodies.page_forms import FormOf
from api.client_details import client_address
from api.cookies import VISIT_COOKIE
from api.html.frame import redirect_to_query, render_list_page
from api.html.problems import get_reader_language
from api.pages.preferences.visits import (
    redirect_to_preferences,
    render_last_page,
    require_visit_form,
)
from api.record_ids import find_list
from api.response_timing import pad_duration
from api.route_classes import ThreadedRoute
from api.sign_up.inputs import EMPTY_ADDRESS, build_inputs
from api.state import StateOf, Transaction
from core.errors import DomainError, mailing
from core.languages.reader_languages import translate
from models import MailingList
from services.accounts import accounts, email_addresses, unsolicited_mail
from services.subscriptions import branding, lists, page_urls
from services.subscriptions.branding import Look
from services.subscriptions.members import traces
from services.subscriptions.preferences import link_mails, own_lists, visits
from storage.unit_of_work import UnitOfWork

router = APIRouter(include_in_schema=False, route_class=ThreadedRoute)


@router.get(page_urls.ASK_PREFERENCES_PATH, dependencies=[PUBLIC])
def show_link_request(
    request: Request,
    uow: Transaction,
    list_name: Annotated[str, Query(alias="list")] = "",
    sent: Annotated[str | None, Query()] = None,
) -> Response:
    mailing_list = _find_named_list(uow, list_name)
    if sent is None:
        return _render_request(uow, request, mailing_list)
    return render_list_page(
        "asked_preferences.html",
        _read_look(uow, mailing_list),
        language=get_reader_language(request),
        list_title=mailing_list and mailing_list.title,
        is_reader_page=True,
    )


@router.post(page_urls.ASK_PREFERENCES_PATH, dependencies=[LOGIN])
async def request_link(
    request: Request,
    state: StateOf,
    form: FormOf,
    list_name: Annotated[str, Query(alias="list")] = "",
    trace_id: Annotated[str | None, Query()] = None,
) -> Response:
    """The response and its duration are the same for every address, so that nobody learns which
    addresses are on the list. Without a list, the mail contains a link for each owner.
    """
    mailing_list: MailingList | None
    async with pad_duration():
        if trace_id is not None:
            mailing_list, email = await state.in_unit_of_work(_find_recipient, trace_id)
        else:
            mailing_list = await state.in_unit_of_work(_find_named_list, list_name)
            try:
                email = email_addresses.normalise_address(form.get("email", ""))
            except DomainError:
                return await state.in_unit_of_work(
                    _render_request, request, mailing_list, form.get("email", "")
                )
        await state.in_unit_of_work(
            link_mails.request_link,
            mailing_list=mailing_list,
            email=email,
            language=get_reader_language(request),
            source=unsolicited_mail.source_digest(state.resources.keyring, client_address(request)),
        )
    query = {"list": mailing_list.slug} if mailing_list else {}
    return redirect_to_query(urlencode({**query, "sent": "yes"}))


def _find_named_list(uow: UnitOfWork, name: str) -> MailingList | None:
    return find_list(uow, name, archived=True) if name else None


def _read_look(uow: UnitOfWork, mailing_list: MailingList | None) -> Look:
    return branding.read_look(uow, mailing_list) if mailing_list else Look()


def _find_recipient(uow: UnitOfWork, trace_id: str) -> tuple[MailingList, str]:
    trace = traces.read_trace_id(uow.settings.keyring, trace_id)
    mailing_list = lists.get_list(uow, trace.list_id, archived=True)
    person = accounts.find_user(uow, trace.user_id)
    if person is None or traces.can_only_leave(mailing_list, trace):
        raise mailing.TRACE_INVALID()
    return mailing_list, person.email


def _render_request(
    uow: UnitOfWork,
    request: Request,
    mailing_list: MailingList | None,
    invalid_address: str | None = None,
) -> Response:
    language = get_reader_language(request)
    errors = {} if invalid_address is None else {"email": translate(language, EMPTY_ADDRESS)}
    email, *_ = build_inputs(language, (), {"email": invalid_address or ""}, errors)
    return render_list_page(
        "ask_preferences.html",
        _read_look(uow, mailing_list),
        language=language,
        status=200 if invalid_address is None else 422,
        list_title=mailing_list and mailing_list.title,
        is_reader_page=True,
        email=email,
    )


@router.get(page_urls.OPEN_PREFERENCES_PATH, dependencies=[PUBLIC])
def show_link(
    request: Request, state: StateOf, uow: Transaction, token: Annotated[str, Query()] = ""
) -> Response:
    visit = visits.read_link(uow, token)
    return render_anonymous_page(
        request,
        state,
        "open_preferences.html",
        look=own_lists.read_look(uow, visit),
        language=get_reader_language(request),
        is_reader_page=True,
        email=visit.person.email,
        count=len(own_lists.find_joined_list_ids(uow, visit)),
    )


@router.post(page_urls.OPEN_PREFERENCES_PATH, dependencies=[PUBLIC])
def begin_visit(
    request: Request,
    state: StateOf,
    uow: Transaction,
    form: FormOf,
    token: Annotated[str, Query()] = "",
) -> Response:
    # Without a CSRF check, an attacker's site could log a reader's browser in to the attacker's
    # preferences.
    require_form_csrf(request, state, form)
    response = redirect_to_preferences(state)
    state.cookies.set(response, VISIT_COOKIE, visits.begin_visit(uow, token))
    return response


@router.post(page_urls.END_VISIT_PATH, dependencies=[PUBLIC])
def end_visit(request: Request, state: StateOf, uow: Transaction, form: FormOf) -> Response:
    visits.end_visit(uow, require_visit_form(request, state, form))
    return render_last_page(request, state, is_erased=False)
