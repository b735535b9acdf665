"""Pages on which a reader sees and changes the subscriptions to an owner's lists.

The reader opens the preferences page with a mailed link. A cookie identifies the reader's session
on this page.
"""

from dataclasses import replace
from typing import Annotated

import orjson
from fastapi import APIRouter, Query, Request, Response

from api.auth import actors
from api.auth.actors import Principal
from api.auth.requirements import PUBLIC
from api.bodies.form_or_json import nest_inputs
from api.bodies.page_forms import FormFields, FormOf
from api.html.frame import HEADERS
from api.html.problems import get_reader_language
from api.limits.bulkheads import LEAVING, RECORDS
from api.limits.keyed_bulkheads import CHANGES_BY_LIST
from api.pages.preferences.actions import LIFT_OPT_OUT, OPT_OUTS, build_unknown_action_error
from api.pages.preferences.data_words import make_value_formatter, translate_names
from api.pages.preferences.visits import (
    find_visit,
    redirect_to_preferences,
    render_last_page,
    render_visit_page,
    require_visit_form,
)
from api.record_ids import PathId
from api.route_classes import ThreadedRoute
from api.sign_up.inputs import build_inputs, describe_field_errors
from api.state import State, StateOf, Transaction
from core.errors import DomainError, mailing
from models import FieldType
from services.privacy import erasure
from services.subscriptions import branding, fields, lists, page_urls
from services.subscriptions.members import unsubscribe
from services.subscriptions.members.changes import Actor, Via
from services.subscriptions.preferences import known_data, own_lists
from services.subscriptions.preferences.visits import Visit
from storage.unit_of_work import UnitOfWork

router = APIRouter(include_in_schema=False, route_class=ThreadedRoute)
ListQuery = Annotated[PathId, Query(alias="list")]


@router.get(page_urls.PREFERENCES_PATH, dependencies=[PUBLIC])
def show_preferences(request: Request, state: StateOf, uow: Transaction) -> Response:
    visit = find_visit(uow, request, state)
    subscriptions = own_lists.read_lists(uow, visit)
    # The address of a subscription may differ from the account's address.
    email = next(
        (each.subscription.email for each in subscriptions if each.subscription.email),
        visit.person.email,
    )
    look = own_lists.read_look(uow, visit)
    return render_visit_page(
        request, state, look, "preferences.html", lists=subscriptions, email=email
    )


@router.post(page_urls.PREFERENCES_PATH, dependencies=[PUBLIC])
async def change_list(request: Request, state: StateOf, form: FormOf) -> Response:
    """Unsubscribe the reader from a list, stop the list's mail, or lift the reader's opt-out."""
    require_visit_form(request, state, form)
    action = form.get("action", "")
    list_id = lists.parse_list_id(form.get("list", "")) or 0

    def opt_out() -> None:
        with state.resources.unit_of_work() as uow:
            visit = find_visit(uow, request, state)
            mailing_list, _ = own_lists.find_list(uow, visit, list_id)
        actor = _build_actor(request, visit)
        kind = OPT_OUTS[action]
        unsubscribe.opt_out(state.resources, mailing_list, visit.person, kind, actor)

    def lift_opt_out(uow: UnitOfWork) -> None:
        visit = find_visit(uow, request, state)
        own_lists.find_list(uow, visit, list_id)
        # ``get_list`` raises an error for an archived list, because archived lists accept no
        # members.
        mailing_list = lists.get_list(uow, list_id)
        LIFT_OPT_OUT[action](uow, mailing_list, visit.person, _build_actor(request, visit))

    if action in OPT_OUTS:
        await LEAVING.run(opt_out)
    elif action in LIFT_OPT_OUT:
        await CHANGES_BY_LIST.run(list_id, state.transact, lift_opt_out)
    else:
        raise build_unknown_action_error()
    return redirect_to_preferences(state)


def _build_actor(request: Request, visit: Visit) -> Actor:
    return actors.build_principal_actor(request, Principal(visit.person.id, Via.PAGE, None))


@router.get(page_urls.ANSWERS_PATH, dependencies=[PUBLIC])
def show_answers(request: Request, state: StateOf, list_id: ListQuery) -> Response:
    return _render_answers(request, state, list_id)


@router.post(page_urls.ANSWERS_PATH, dependencies=[PUBLIC])
async def change_answers(
    request: Request, state: StateOf, list_id: ListQuery, form: FormOf
) -> Response:
    require_visit_form(request, state, form)
    inputs = nest_inputs(list(form.items()), "fields")

    def save_answers(uow: UnitOfWork) -> None:
        visit = find_visit(uow, request, state)
        own_lists.change_answers(
            uow,
            visit,
            list_id,
            _build_actor(request, visit),
            name=inputs.get("name", ""),
            values=inputs["fields"],
        )

    try:
        await CHANGES_BY_LIST.run(list_id, state.transact, save_answers)
    except DomainError as error:
        if error.code != mailing.FIELD_VALUE.code:
            raise
        return await RECORDS.run(_render_answers, request, state, list_id, form, error)
    return redirect_to_preferences(state)


def _render_answers(
    request: Request,
    state: State,
    list_id: int,
    form: FormFields | None = None,
    error: DomainError | None = None,
) -> Response:
    """Render the reader's answers, or the submitted answers after an error."""
    language = get_reader_language(request)
    with state.resources.unit_of_work() as uow:
        mailing_list, record = own_lists.find_list(uow, find_visit(uow, request, state), list_id)
        public = fields.read_own_fields(uow, mailing_list.user_id).select_public()
        look = branding.read_look(uow, mailing_list)
    values: dict[str, str]
    if form is None:
        values = {"name": record.name or ""}
        for key, value in public.replace_ids(record.fields).items():
            yes_or_no = "yes" if value else "no"
            text = yes_or_no if isinstance(value, bool) else fields.format_value(value)
            values[f"fields.{key}"] = text
    else:
        values = form
    errors = describe_field_errors(language, public.by_key, error)
    _, *inputs = build_inputs(language, public.by_key.values(), values, errors)
    for number, each in enumerate(inputs):
        # Don't use a checkbox for a yes-or-no question, because a checkbox can't represent a
        # missing answer.
        if each.kind == FieldType.BOOLEAN:
            inputs[number] = replace(each, kind="yes_no")
    return render_visit_page(
        request,
        state,
        look,
        "answers.html",
        status=200 if error is None else 422,
        list_title=mailing_list.title,
        inputs=inputs,
    )


@router.get(page_urls.OWN_DATA_PATH, dependencies=[PUBLIC])
def show_own_data(request: Request, state: StateOf, uow: Transaction) -> Response:
    language = get_reader_language(request)
    visit = find_visit(uow, request, state)
    return render_visit_page(
        request,
        state,
        own_lists.read_look(uow, visit),
        "own_data.html",
        known=known_data.read_known_data(uow, visit),
        labels=translate_names(language),
        field_labels={each.key: each.label for each in fields.list_fields(uow, visit.owner_id)},
        format_value=make_value_formatter(language),
    )


@router.get(page_urls.OWN_DATA_FILE_PATH, dependencies=[PUBLIC])
def read_own_data(request: Request, state: StateOf, uow: Transaction) -> Response:
    visit = find_visit(uow, request, state)
    known_facts = known_data.read_known_data(uow, visit)
    disposition = {"Content-Disposition": 'attachment; filename="what-is-known.json"'}
    text = orjson.dumps(known_facts, option=orjson.OPT_INDENT_2)
    return Response(text, media_type="application/json", headers={**HEADERS, **disposition})


@router.get(page_urls.ERASE_PATH, dependencies=[PUBLIC])
def show_erasing(request: Request, state: StateOf, uow: Transaction) -> Response:
    visit = find_visit(uow, request, state)
    reach = erasure.assess_erasure(uow, visit.person, visit.owner_id)
    return render_visit_page(
        request,
        state,
        own_lists.read_look(uow, visit),
        "erase.html",
        email=visit.person.email,
        lists=[
            each
            for each in own_lists.read_lists(uow, visit)
            if each.subscription.state in ("subscribed", "without_mail", "pending")
        ],
        has_account=reach.has_account,
        is_elsewhere=reach.is_elsewhere,
    )


@router.post(page_urls.ERASE_PATH, dependencies=[PUBLIC])
def erase_person(request: Request, state: StateOf, uow: Transaction, form: FormOf) -> Response:
    """Mark the reader's data for erasure. When the transaction is committed, the reader is removed
    from all lists.
    """
    require_visit_form(request, state, form)
    erasure.mark_own_erasure(uow, find_visit(uow, request, state).person)
    return render_last_page(request, state, is_erased=True)
