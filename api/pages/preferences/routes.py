"""A reader's preferences at the lists of one owner, in a visit that a mailed link began."""

from dataclasses import replace
from typing import Annotated, Any
from urllib.parse import urlencode

import orjson
from fastapi import APIRouter, Query, Request, Response

from api.auth import actors
from api.auth.actors import Principal
from api.auth.csrf import CSRF_FIELD, require_form_csrf
from api.auth.form_pages import render_anonymous_page
from api.auth.requirements import LOGIN, PUBLIC
from api.bodies.forms import nested_inputs
from api.bodies.page_forms import FormFields, FormOf
from api.browsers import VISIT, client_address
from api.html.frame import HEADERS, list_page, page, redirect
from api.html.problems import reader_language
from api.limits.bulkheads import ACTS_BY_LIST, LEAVING, RECORDS
from api.pages.preferences.words import OPT_OUTS, RETURNS, known_words, shown_value, unknown_action
from api.record_ids import PathId, find_list
from api.response_timing import pad_duration
from api.route_classes import ThreadedRoute
from api.sign_up.inputs import EMPTY_ADDRESS, build_inputs, describe_field_errors
from api.state import State, StateOf, Transaction
from core.errors import DomainError, access, mailing
from core.languages.reader_languages import translated
from models import FieldType, MailingList
from services.access import sessions
from services.accounts import accounts, email_addresses, unsolicited_mail
from services.privacy import erasure
from services.subscriptions import branding, fields, lists, page_urls
from services.subscriptions.branding import Look
from services.subscriptions.members import traces, unsubscribe
from services.subscriptions.members.changes import Actor, Via
from services.subscriptions.preferences import known_data, link_mails, own_lists, visits
from services.subscriptions.preferences.visits import Visit
from storage.unit_of_work import UnitOfWork


def visit_secret(request: Request, state: State) -> str | None:
    return state.cookies.read(request, VISIT)


def visit_of(uow: UnitOfWork, request: Request, state: State) -> Visit:
    """Return the visit; raises ``visit.over``, also for a browser that never began one."""
    return visits.read_visit(uow, visit_secret(request, state))


def require_visit_form(request: Request, state: State, form: FormFields) -> str | None:
    """Return the secret of the visit; raises ``auth.csrf`` for a form of another page."""
    secret, token = visit_secret(request, state), form.get(CSRF_FIELD, "")
    if secret and not sessions.is_csrf_token(state.resources.keyring, secret, token):
        raise access.AUTH_CSRF(header=CSRF_FIELD)
    return secret


def visit_page(request: Request, state: State, template: str, **values: Any) -> Response:
    token = sessions.csrf_token(state.resources.keyring, visit_secret(request, state) or "")
    return page(
        template,
        language=reader_language(request),
        base=state.resources.settings.pages_base,
        csrf_token=token,
        **values,
    )


def redirect_to_preferences(state: State) -> Response:
    return redirect(state.resources.settings.pages_base + page_urls.PREFERENCES_PATH)


def goodbye(request: Request, state: State, *, is_erased: bool) -> Response:
    """Return the last page of a visit, whose secret the browser forgets."""
    answer = page("visit_ended.html", language=reader_language(request), is_erased=is_erased)
    state.cookies.drop(answer, VISIT)
    return answer


router = APIRouter(include_in_schema=False, route_class=ThreadedRoute)

ListQuery = Annotated[PathId, Query(alias="list")]


@router.get(page_urls.PREFERENCES_PATH, dependencies=[PUBLIC])
def show_preferences(request: Request, state: StateOf, uow: Transaction) -> Response:
    visit = visit_of(uow, request, state)
    found = own_lists.read_lists(uow, visit)
    # Their account may have moved on; the lists then still have its earlier address.
    email = next(
        (each.subscription.email for each in found if each.subscription.email), visit.person.email
    )
    return visit_page(request, state, "preferences.html", lists=found, email=email)


@router.post(page_urls.PREFERENCES_PATH, dependencies=[PUBLIC])
async def change_list(request: Request, state: StateOf, form: FormOf) -> Response:
    """Leave a list, stop its mails, or take that back."""
    require_visit_form(request, state, form)
    action, list_id = form.get("action", ""), lists.id_of(form.get("list", "")) or 0

    def leave() -> None:
        with state.resources.unit_of_work() as uow:
            visit = visit_of(uow, request, state)
            mailing_list, _ = own_lists.find_list(uow, visit, list_id)
        actor = _actor(request, visit)
        kind = OPT_OUTS[action]
        unsubscribe.opt_out(state.resources, mailing_list, visit.person, kind, actor)

    def come_back(uow: UnitOfWork) -> None:
        visit = visit_of(uow, request, state)
        own_lists.find_list(uow, visit, list_id)
        # A person can leave an archived list, but not join it.
        mailing_list = lists.get(uow, list_id)
        RETURNS[action](uow, mailing_list, visit.person, _actor(request, visit))

    if action in OPT_OUTS:
        await LEAVING.run(leave)
    elif action in RETURNS:
        await ACTS_BY_LIST.run(list_id, state.transact, come_back)
    else:
        raise unknown_action()
    return redirect_to_preferences(state)


def _actor(request: Request, visit: Visit) -> Actor:
    return actors.actor_of_principal(request, Principal(visit.person.id, Via.PAGE, None))


@router.get(page_urls.ANSWERS_PATH, dependencies=[PUBLIC])
def show_answers(request: Request, state: StateOf, list_id: ListQuery) -> Response:
    return _answers_page(request, state, list_id)


@router.post(page_urls.ANSWERS_PATH, dependencies=[PUBLIC])
async def change_answers(
    request: Request, state: StateOf, list_id: ListQuery, form: FormOf
) -> Response:
    require_visit_form(request, state, form)
    inputs = nested_inputs(list(form.items()), "fields")

    def answer(uow: UnitOfWork) -> None:
        visit = visit_of(uow, request, state)
        name, values = inputs.get("name", ""), inputs["fields"]
        actor = _actor(request, visit)
        own_lists.change_answers(uow, visit, list_id, actor, name=name, values=values)

    try:
        await ACTS_BY_LIST.run(list_id, state.transact, answer)
    except DomainError as error:
        if error.code != mailing.FIELD_VALUE.code:
            raise
        return await RECORDS.run(_answers_page, request, state, list_id, form, error)
    return redirect_to_preferences(state)


def _answers_page(
    request: Request,
    state: State,
    list_id: int,
    form: FormFields | None = None,
    error: DomainError | None = None,
) -> Response:
    """Show the answers that the list has, or those that need a correction."""
    language = reader_language(request)
    with state.resources.unit_of_work() as uow:
        mailing_list, record = own_lists.find_list(uow, visit_of(uow, request, state), list_id)
        public = fields.own(uow, mailing_list.user_id).public()
    shown = {}
    for key, value in public.shown(record.fields).items():
        yes_or_no = "yes" if value else "no"
        shown[f"fields.{key}"] = yes_or_no if isinstance(value, bool) else fields.as_text(value)
    written = {"name": record.name or "", **shown} if form is None else form
    problems = describe_field_errors(language, public.by_key, error)
    _, *inputs = build_inputs(language, public.by_key.values(), written, problems)
    for number, each in enumerate(inputs):
        # A person may also remove an answer.
        if each.kind == FieldType.BOOLEAN:
            inputs[number] = replace(each, kind="yes_no")
    return visit_page(
        request,
        state,
        "answers.html",
        status=200 if error is None else 422,
        list_title=mailing_list.title,
        inputs=inputs,
    )


@router.get(page_urls.OWN_DATA_PATH, dependencies=[PUBLIC])
def show_own_data(request: Request, state: StateOf, uow: Transaction) -> Response:
    language = reader_language(request)
    visit = visit_of(uow, request, state)
    known = known_data.read_known_data(uow, visit)
    words, shown = known_words(language), shown_value(language)
    return visit_page(request, state, "own_data.html", known=known, words=words, shown=shown)


@router.get(page_urls.OWN_DATA_FILE_PATH, dependencies=[PUBLIC])
def read_own_data(request: Request, state: StateOf, uow: Transaction) -> Response:
    visit = visit_of(uow, request, state)
    known = known_data.read_known_data(uow, visit)
    disposition = {"Content-Disposition": 'attachment; filename="what-is-known.json"'}
    text = orjson.dumps(known, option=orjson.OPT_INDENT_2)
    return Response(text, media_type="application/json", headers={**HEADERS, **disposition})


@router.get(page_urls.ERASE_PATH, dependencies=[PUBLIC])
def show_erasing(request: Request, state: StateOf, uow: Transaction) -> Response:
    visit = visit_of(uow, request, state)
    reach = erasure.read_reach(uow, visit.person, visit.owner_id)
    return visit_page(
        request,
        state,
        "erase.html",
        email=visit.person.email,
        has_account=reach.has_account,
        is_elsewhere=reach.is_elsewhere,
    )


@router.post(page_urls.ERASE_PATH, dependencies=[PUBLIC])
def erase(request: Request, state: StateOf, uow: Transaction, form: FormOf) -> Response:
    """Begin the erasure of the person: from the commit on they are on no list."""
    require_visit_form(request, state, form)
    erasure.mark_own_erasure(uow, visit_of(uow, request, state).person)
    return goodbye(request, state, is_erased=True)


# A trace id can only ask for the link: each mail of a list has one, and mails are passed on.
# Opening the link changes nothing; pressing its button begins a visit of an hour.


@router.get(page_urls.ASK_PREFERENCES_PATH, dependencies=[PUBLIC])
def show_asking(
    request: Request,
    uow: Transaction,
    named: Annotated[str, Query(alias="list")] = "",
    sent: Annotated[str | None, Query()] = None,
) -> Response:
    if sent is not None:
        return page("asked_preferences.html", language=reader_language(request))
    mailing_list = find_list(uow, named, archived=True)
    look = branding.read_look(uow, mailing_list)
    return _asking_page(request, look, mailing_list)


@router.post(page_urls.ASK_PREFERENCES_PATH, dependencies=[LOGIN])
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
    async with pad_duration():
        if trace_id is not None:
            mailing_list, email = await state.in_unit_of_work(_of_trace, trace_id)
        else:
            mailing_list = await state.in_unit_of_work(find_list, named, archived=True)
            try:
                email = email_addresses.normalise(form.get("email", ""))
            except DomainError:
                look = await state.in_unit_of_work(branding.read_look, mailing_list)
                return _asking_page(request, look, mailing_list, form.get("email", ""))
        await state.in_unit_of_work(
            link_mails.request_link,
            mailing_list=mailing_list,
            email=email,
            language=reader_language(request),
            source=unsolicited_mail.source_digest(state.resources.keyring, client_address(request)),
        )
    return redirect(f"?{urlencode({'sent': 'yes'})}")


def _of_trace(uow: UnitOfWork, trace_id: str) -> tuple[MailingList, str]:
    trace = traces.read(uow.settings.keyring, trace_id)
    mailing_list = lists.get(uow, trace.list_id, archived=True)
    person = accounts.find(uow, trace.user_id)
    if person is None or traces.is_revoked(mailing_list, trace.delivery):
        raise mailing.TRACE_INVALID()
    return mailing_list, person.email


def _asking_page(
    request: Request, look: Look, mailing_list: MailingList, written: str | None = None
) -> Response:
    language = reader_language(request)
    problems = {} if written is None else {"email": translated(language, EMPTY_ADDRESS)}
    email, *_ = build_inputs(language, (), {"email": written or ""}, problems)
    return list_page(
        "ask_preferences.html",
        look,
        language=language,
        status=200 if written is None else 422,
        list_title=mailing_list.title,
        email=email,
    )


@router.get(page_urls.OPEN_PREFERENCES_PATH, dependencies=[PUBLIC])
def show_link(
    request: Request, state: StateOf, uow: Transaction, token: Annotated[str, Query()] = ""
) -> Response:
    visits.read_link(uow, token)
    language = reader_language(request)
    return render_anonymous_page(request, state, "open_preferences.html", language=language)


@router.post(page_urls.OPEN_PREFERENCES_PATH, dependencies=[PUBLIC])
def begin_visit(
    request: Request,
    state: StateOf,
    uow: Transaction,
    form: FormOf,
    token: Annotated[str, Query()] = "",
) -> Response:
    # Else another site's form would put a reader into the visit of whoever made the site.
    require_form_csrf(request, state, form)
    answer = redirect_to_preferences(state)
    state.cookies.keep(answer, VISIT, visits.begin_visit(uow, token))
    return answer


@router.post(page_urls.END_VISIT_PATH, dependencies=[PUBLIC])
def end_visit(request: Request, state: StateOf, uow: Transaction, form: FormOf) -> Response:
    visits.end_visit(uow, require_visit_form(request, state, form))
    return goodbye(request, state, is_erased=False)
