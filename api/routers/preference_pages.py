"""A reader's preferences at the lists of one owner, in a visit that a mailed link began."""

from collections.abc import Callable
from functools import partial
from typing import Annotated

import orjson
from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from api.access import actors
from api.access.actors import Principal
from api.access.page_sessions import FormFields, FormOf
from api.access.requirements import PUBLIC
from api.bodies.forms import nested_inputs
from api.limits.bulkheads import LEAVING, RECORDS
from api.limits.shares import ACTS_BY_LIST
from api.pages.audience import reader_language
from api.pages.frame import HEADERS
from api.pages.known_words import known_words, shown_value
from api.parameters import PathId, StateOf
from api.readers.reader_visits import (
    goodbye,
    redirect_to_preferences,
    require_visit_form,
    visit_of,
    visit_page,
)
from api.readers.sign_up_inputs import (
    ShownInput,
    answered_inputs,
    problems_of_fields,
)
from api.state import State
from core.errors import DomainError
from core.refusals.attributes import FIELD_VALUE
from core.refusals.requests import BODY_INVALID
from models import OptOutKind
from services.erasure import own_erasure
from services.mailing import lists
from services.mailing.attributes import field_values, fields
from services.mailing.preferences import lists_of_reader, own_data
from services.mailing.preferences.preference_visits import Visit
from services.mailing.subscriptions import mail_urls, unsubscribe
from services.mailing.subscriptions.changes import Actor, Via
from storage.unit_of_work import UnitOfWork

# No operations of the API, so not in its document.
router = APIRouter(include_in_schema=False)

ListQuery = Annotated[PathId, Query(alias="list")]
_LEAVING = {"leave": OptOutKind.LIST, "stop_mail": OptOutKind.EMAIL}
_RETURNING: dict[str, Callable[..., None]] = {
    "undo": unsubscribe.undo_leave,
    "resume_mail": partial(unsubscribe.set_email, enabled=True),
}


# -- the lists ------------------------------------------------------------------------------------


@router.get(mail_urls.PREFERENCES_PATH, dependencies=[PUBLIC])
@RECORDS.threaded
def show_preferences(request: Request, state: StateOf) -> Response:
    with state.resources.unit_of_work() as uow:
        visit = visit_of(uow, request, state)
        found = lists_of_reader.of_visit(uow, state.resources.keyring, visit)
        email = visit.person.email
        return visit_page(request, state, "preferences.html", lists=found, email=email)


@router.post(mail_urls.PREFERENCES_PATH, dependencies=[PUBLIC])
async def change_list(request: Request, state: StateOf, form: FormOf) -> Response:
    """Leave a list, stop its mails, or take that back."""
    require_visit_form(request, state, form)
    action, list_id = form.get("action", ""), lists.id_of(form.get("list", "")) or 0
    if action in _LEAVING:
        await LEAVING.run(_leave, request, state, list_id, _LEAVING[action])
    elif action in _RETURNING:
        work = partial(_return, request=request, state=state, list_id=list_id, action=action)
        await ACTS_BY_LIST.run(list_id, state.transact, work)
    else:
        rule = f"one of {', '.join((*_LEAVING, *_RETURNING))}"
        raise BODY_INVALID(place="body.action", rule=rule)
    return redirect_to_preferences(state)


def _actor(request: Request, visit: Visit) -> Actor:
    return actors.actor_of_principal(request, Principal(visit.person.id, Via.PAGE, None))


def _leave(request: Request, state: State, list_id: int, kind: OptOutKind) -> None:
    with state.resources.unit_of_work() as uow:
        visit = visit_of(uow, request, state)
        mailing_list, _ = lists_of_reader.one(uow, visit, list_id)
    actor = _actor(request, visit)
    unsubscribe.opt_out(state.resources, mailing_list, visit.person, kind, actor)


def _return(uow: UnitOfWork, request: Request, state: State, list_id: int, action: str) -> None:
    visit = visit_of(uow, request, state)
    lists_of_reader.one(uow, visit, list_id)
    # A person can leave an archived list, but not join it.
    mailing_list = lists.get(uow, list_id)
    keyring, actor = state.resources.keyring, _actor(request, visit)
    _RETURNING[action](uow, keyring, mailing_list, visit.person, actor)


@router.get(mail_urls.ANSWERS_PATH, dependencies=[PUBLIC])
@RECORDS.threaded
def show_answers(request: Request, state: StateOf, list_id: ListQuery) -> Response:
    return _answers_page(request, state, list_id)


@router.post(mail_urls.ANSWERS_PATH, dependencies=[PUBLIC])
async def change_answers(
    request: Request, state: StateOf, list_id: ListQuery, form: FormOf
) -> Response:
    require_visit_form(request, state, form)
    inputs = nested_inputs(list(form.items()), "fields")

    def answer(uow: UnitOfWork) -> None:
        visit = visit_of(uow, request, state)
        name, values = inputs.get("name", ""), inputs["fields"]
        actor = _actor(request, visit)
        lists_of_reader.answer(uow, visit, list_id, actor, name=name, values=values)

    try:
        await ACTS_BY_LIST.run(list_id, state.transact, answer)
    except DomainError as error:
        if error.code != FIELD_VALUE.code:
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
    """What the list has, or what was written and is to be corrected."""
    language = reader_language(request)
    with state.resources.unit_of_work() as uow:
        mailing_list, record = lists_of_reader.one(uow, visit_of(uow, request, state), list_id)
        public = fields.own(uow, mailing_list.user_id).public()
    shown = {f"fields.{key}": _written(value) for key, value in public.shown(record.fields).items()}
    written = {"name": record.name or "", **shown} if form is None else form
    problems = problems_of_fields(language, public.by_key, error)
    inputs: list[ShownInput] = answered_inputs(language, public.by_key.values(), written, problems)
    return visit_page(
        request,
        state,
        "answers.html",
        status=200 if error is None else 422,
        list_title=mailing_list.title,
        inputs=inputs,
    )


def _written(value: field_values.FieldValue) -> str:
    """A stored value as its input has it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return field_values.as_text(value)


# -- what is known, and its erasure ---------------------------------------------------------------


@router.get(mail_urls.OWN_DATA_PATH, dependencies=[PUBLIC])
@RECORDS.threaded
def show_own_data(request: Request, state: StateOf) -> Response:
    language = reader_language(request)
    with state.resources.unit_of_work() as uow:
        visit = visit_of(uow, request, state)
        known = own_data.of_visit(uow, state.resources.keyring, visit)
    words, shown = known_words(language), shown_value(language)
    return visit_page(request, state, "own_data.html", known=known, words=words, shown=shown)


@router.get(mail_urls.OWN_DATA_FILE_PATH, dependencies=[PUBLIC])
@RECORDS.threaded
def read_own_data(request: Request, state: StateOf) -> Response:
    with state.resources.unit_of_work() as uow:
        visit = visit_of(uow, request, state)
        known = own_data.of_visit(uow, state.resources.keyring, visit)
    disposition = {"Content-Disposition": 'attachment; filename="what-is-known.json"'}
    text = orjson.dumps(known, option=orjson.OPT_INDENT_2)
    return Response(text, media_type="application/json", headers={**HEADERS, **disposition})


@router.get(mail_urls.ERASE_PATH, dependencies=[PUBLIC])
@RECORDS.threaded
def show_erasing(request: Request, state: StateOf) -> Response:
    with state.resources.unit_of_work() as uow:
        visit = visit_of(uow, request, state)
        reach = own_erasure.reach(uow, visit.person, visit.owner_id)
        return visit_page(
            request,
            state,
            "erase.html",
            email=visit.person.email,
            has_account=reach.has_account,
            is_elsewhere=reach.is_elsewhere,
        )


@router.post(mail_urls.ERASE_PATH, dependencies=[PUBLIC])
async def erase(request: Request, state: StateOf, form: FormOf) -> Response:
    """Begin the erasure of the person: from the commit on they are on no list."""
    require_visit_form(request, state, form)

    def begin(uow: UnitOfWork) -> None:
        visit = visit_of(uow, request, state)
        own_erasure.begin(uow, state.resources.keyring, visit.person)

    await state.in_unit_of_work(begin)
    return goodbye(request, state, is_erased=True)
