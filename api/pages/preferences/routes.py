"""The pages on which a reader sees and changes their subscriptions, during a visit."""

from dataclasses import replace
from typing import Annotated

import orjson
from fastapi import APIRouter, Query, Request, Response

from api.auth import actors
from api.auth.actors import Principal
from api.auth.requirements import PUBLIC
from api.bodies.forms import nested_inputs
from api.bodies.page_forms import FormFields, FormOf
from api.html.frame import HEADERS
from api.html.problems import reader_language
from api.limits.bulkheads import ACTS_BY_LIST, LEAVING, RECORDS
from api.pages.preferences.actions import OPT_OUTS, RETURNS, unknown_action
from api.pages.preferences.data_words import known_words, shown_value
from api.pages.preferences.visits import (
    goodbye,
    redirect_to_preferences,
    require_visit_form,
    visit_of,
    visit_page,
)
from api.record_ids import PathId
from api.route_classes import ThreadedRoute
from api.sign_up.inputs import build_inputs, describe_field_errors
from api.state import State, StateOf, Transaction
from core.errors import DomainError, mailing
from models import FieldType
from services.privacy import erasure
from services.subscriptions import fields, lists, page_urls
from services.subscriptions.members import unsubscribe
from services.subscriptions.members.changes import Actor, Via
from services.subscriptions.preferences import known_data, own_lists
from services.subscriptions.preferences.visits import Visit
from storage.unit_of_work import UnitOfWork

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
