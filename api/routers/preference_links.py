"""The link to a reader's preferences: asked for, mailed, and opened in one browser.

A trace id asks for the link and does no more: it is in each mail of a list, and mails are passed
on. Opening the link changes nothing; pressing its button begins a visit of an hour.
"""

from functools import partial
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from api.access.answer_timing import padded_duration
from api.access.browsers import mail_source
from api.access.page_sessions import FormOf
from api.access.requirements import LOGIN, PUBLIC
from api.limits.bulkheads import RECORDS
from api.pages.audience import reader_language
from api.pages.frame import page, redirect
from api.pages.list_pages import list_page
from api.parameters import StateOf
from api.readers.reader_visits import goodbye, redirect_to_preferences, require_visit_form
from api.readers.sign_up_inputs import email_input
from api.request_ids import current_request_id
from api.state import State
from core.errors import DomainError
from core.languages.reader_languages import marked, translated
from core.refusals.mailing import LIST_NAME_INVALID, LIST_NOT_FOUND, TRACE_INVALID
from models import MailingList
from services.mailing import lists, looks
from services.mailing.looks import Look
from services.mailing.preferences import link_mails, preference_visits
from services.mailing.subscriptions import mail_urls, trace_ids
from services.people import accounts, email_addresses
from storage.unit_of_work import UnitOfWork

# No operations of the API, so not in its document.
router = APIRouter(include_in_schema=False)

_NO_ADDRESS = marked("Please write your e-mail address.")


# -- asking for the link --------------------------------------------------------------------------


@router.get(mail_urls.ASK_PREFERENCES_PATH, dependencies=[PUBLIC])
@RECORDS.threaded
def show_asking(
    request: Request,
    state: StateOf,
    named: Annotated[str, Query(alias="list")] = "",
    sent: Annotated[str | None, Query()] = None,
) -> Response:
    if sent is not None:
        return page("asked_preferences.html", language=reader_language(request))
    with state.resources.unit_of_work() as uow:
        mailing_list = _named(uow, named)
        look = looks.of(uow, state.resources.settings, mailing_list)
    return _asking_page(request, look, mailing_list)


@router.post(mail_urls.ASK_PREFERENCES_PATH, dependencies=[LOGIN])
async def ask_for_link(
    request: Request,
    state: StateOf,
    form: FormOf,
    named: Annotated[str, Query(alias="list")] = "",
    trace_id: Annotated[str | None, Query()] = None,
) -> Response:
    """Mail the link: to the person of a trace id, or to the address that was written.

    The answer and its time are the same for each address.
    """
    async with padded_duration():
        if trace_id is not None:
            mailing_list, email = await state.in_unit_of_work(
                partial(_of_trace, state=state, trace_id=trace_id)
            )
        else:
            mailing_list = await state.in_unit_of_work(partial(_named, named=named))
            try:
                email = email_addresses.normalise(form.get("email", ""))
            except DomainError:
                find_look = partial(
                    looks.of, settings=state.resources.settings, mailing_list=mailing_list
                )
                look = await state.in_unit_of_work(find_look)
                return _asking_page(request, look, mailing_list, form.get("email", ""))
        ask = partial(
            link_mails.ask,
            mailing_list=mailing_list,
            email=email,
            language=reader_language(request),
            source=mail_source(request, state),
            request_id=current_request_id(),
        )
        await state.in_unit_of_work(ask)
    return redirect(f"?{urlencode({'sent': 'yes'})}")


def _of_trace(uow: UnitOfWork, state: State, trace_id: str) -> tuple[MailingList, str]:
    trace = trace_ids.read(state.resources.keyring, trace_id)
    mailing_list = lists.get(uow, trace.list_id, archived=True)
    person = accounts.find(uow, trace.user_id)
    if person is None or trace_ids.is_revoked(mailing_list, trace.delivery):
        raise TRACE_INVALID()
    return mailing_list, person.email


def _named(uow: UnitOfWork, named: str) -> MailingList:
    try:
        return lists.get_named(uow, named, archived=True)
    except DomainError as error:
        if error.code != LIST_NAME_INVALID.code:
            raise
        raise LIST_NOT_FOUND() from None


def _asking_page(
    request: Request, look: Look, mailing_list: MailingList, written: str | None = None
) -> Response:
    language = reader_language(request)
    problem = None if written is None else translated(language, _NO_ADDRESS)
    return list_page(
        "ask_preferences.html",
        look,
        language=language,
        status=200 if written is None else 422,
        list_title=mailing_list.title,
        email=email_input(language, written or "", problem),
    )


# -- the visit ------------------------------------------------------------------------------------


@router.get(mail_urls.OPEN_PREFERENCES_PATH, dependencies=[PUBLIC])
@RECORDS.threaded
def show_link(request: Request, state: StateOf, token: Annotated[str, Query()] = "") -> Response:
    with state.resources.unit_of_work() as uow:
        preference_visits.read_link(uow, state.resources.keyring, token)
    return page("open_preferences.html", language=reader_language(request))


@router.post(mail_urls.OPEN_PREFERENCES_PATH, dependencies=[PUBLIC])
async def begin_visit(
    request: Request, state: StateOf, token: Annotated[str, Query()] = ""
) -> Response:
    keyring = state.resources.keyring
    secret = await state.in_unit_of_work(
        partial(preference_visits.begin, keyring=keyring, secret=token)
    )
    answer = redirect_to_preferences(state)
    state.cookies.keep_visit(answer, secret)
    return answer


@router.post(mail_urls.END_VISIT_PATH, dependencies=[PUBLIC])
async def end_visit(request: Request, state: StateOf, form: FormOf) -> Response:
    secret = require_visit_form(request, state, form)
    keyring = state.resources.keyring
    await state.in_unit_of_work(partial(preference_visits.end, keyring=keyring, secret=secret))
    return goodbye(request, state, is_erased=False)
