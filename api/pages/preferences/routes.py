"""Pages on which a reader sees and changes the subscriptions to an owner's lists.

The reader opens the preferences page with a mailed link. A cookie identifies the reader's session
on this page.
"""

from collections.abc import Mapping
from functools import partial
from typing import Annotated

import orjson
from fastapi import APIRouter, Query, Request, Response

from api.auth import actors
from api.auth.actors import Principal
from api.auth.requirements import PUBLIC
from api.bodies.page_forms import FormFields, FormOf
from api.html.frame import HEADERS, redirect_to
from api.html.problems import get_reader_language
from api.limits.bulkheads import LEAVING, RECORDS
from api.limits.keyed_bulkheads import CHANGES_BY_LIST
from api.pages.preferences.actions import LIFT_OPT_OUT, OPT_OUTS, build_unknown_action_error
from api.pages.preferences.choices import (
    ListChanges,
    RefusedAnswers,
    build_form,
    read_changes,
)
from api.pages.preferences.data_words import make_value_formatter, translate_names
from api.pages.preferences.visits import (
    find_visit,
    render_last_page,
    render_visit_page,
    require_visit_form,
)
from api.record_ids import PathId, parse_id
from api.route_classes import ThreadedRoute
from api.state import State, StateOf, Transaction
from core.errors import DomainError, mailing
from services.privacy import erasure
from services.subscriptions import fields, lists, page_urls
from services.subscriptions.members import unsubscribe
from services.subscriptions.members.changes import Actor, Via
from services.subscriptions.preferences import known_data, own_lists
from services.subscriptions.preferences.visits import Visit
from storage.unit_of_work import UnitOfWork

router = APIRouter(include_in_schema=False, route_class=ThreadedRoute)
ListQuery = Annotated[PathId, Query(alias="list")]
OptionalListQuery = Annotated[PathId | None, Query(alias="list")]

# The value of the button that unsubscribes the reader from all lists of the owner.
_LEAVE_ALL = "leave_all"
# The data page shows these facts only once if they are the same on all lists.
_SHARED_FACTS = ("name", "email", "type", "language", "fields")


@router.get(page_urls.PREFERENCES_PATH, dependencies=[PUBLIC])
def show_preferences(
    request: Request,
    state: StateOf,
    uow: Transaction,
    list_id: OptionalListQuery = None,
    saved: Annotated[str | None, Query()] = None,
) -> Response:
    return _render_preferences(request, state, uow, list_id, saved=saved)


@router.get(page_urls.ANSWERS_PATH, dependencies=[PUBLIC])
def show_answers(
    request: Request, state: StateOf, uow: Transaction, list_id: ListQuery
) -> Response:
    """Show the preferences page with this list first."""
    own_lists.find_list(uow, find_visit(uow, request, state), list_id)
    return _render_preferences(request, state, uow, list_id)


@router.post(page_urls.PREFERENCES_PATH, dependencies=[PUBLIC])
async def change_preferences(request: Request, state: StateOf, form: FormOf) -> Response:
    """Apply the reader's choices. Opt-outs come first, because nothing may prevent them."""
    require_visit_form(request, state, form)
    action = form.get("action")
    if action == _LEAVE_ALL:
        list_ids = await LEAVING.run(_find_joined_list_ids, request, state)
        changes = {list_id: ListChanges(["leave"]) for list_id in list_ids}
    elif action is None:
        changes = read_changes(form)
    else:
        # Release 1.1.0 has one form per list, and may run next to this release.
        if action not in OPT_OUTS and action not in LIFT_OPT_OUT:
            raise build_unknown_action_error()
        changes = {parse_id(form.get("list", "")) or 0: ListChanges([action])}
    return await _change_lists(request, state, form, changes)


@router.post(page_urls.ANSWERS_PATH, dependencies=[PUBLIC])
async def change_answers(
    request: Request, state: StateOf, list_id: ListQuery, form: FormOf
) -> Response:
    """Save the form of release 1.1.0, which may run next to this release."""
    require_visit_form(request, state, form)
    answers = {f"{list_id}.{name}": value for name, value in form.items()}
    return await _change_lists(request, state, answers, read_changes(answers))


async def _change_lists(
    request: Request, state: State, form: FormFields, changes: Mapping[int, ListChanges]
) -> Response:
    # A form without changes needs a visit too.
    await LEAVING.run(state.transact, lambda uow: find_visit(uow, request, state))
    errors = await _store_opt_outs(request, state, changes)
    result = await _save_answers(request, state, form, changes, errors)
    if isinstance(result, RefusedAnswers):
        return await RECORDS.run(_render_refused_answers, request, state, result)
    await _lift_opt_outs(request, state, changes, errors)
    if errors:
        raise errors[0]
    path = f"{state.resources.settings.pages_base}{page_urls.PREFERENCES_PATH}"
    return redirect_to(f"{path}?saved={'yes' if result else 'partly'}")


async def _store_opt_outs(
    request: Request, state: State, changes: Mapping[int, ListChanges]
) -> list[DomainError]:
    """Return the errors. The error of one list prevents no opt-out from another list."""
    errors: list[DomainError] = []

    def opt_out(list_id: int, action: str) -> None:
        with state.resources.unit_of_work() as uow:
            visit = find_visit(uow, request, state)
            mailing_list, _ = own_lists.find_list(uow, visit, list_id)
        actor = _build_actor(request, visit)
        unsubscribe.opt_out(state.resources, mailing_list, visit.person, OPT_OUTS[action], actor)

    for list_id, change in changes.items():
        for action in change.actions:
            if action in OPT_OUTS:
                try:
                    await LEAVING.run(opt_out, list_id, action)
                except DomainError as error:
                    errors.append(error)
    return errors


async def _save_answers(
    request: Request,
    state: State,
    form: FormFields,
    changes: Mapping[int, ListChanges],
    errors: list[DomainError],
) -> bool | RefusedAnswers:
    """Return whether all answers were saved, or the first refused answers.

    Answers for a list that the reader has left since the page was opened aren't saved.
    """

    def save_answers(uow: UnitOfWork, list_id: int, change: ListChanges) -> bool:
        visit = find_visit(uow, request, state)
        actor = _build_actor(request, visit)
        return own_lists.change_answers(
            uow, visit, list_id, actor, name=change.name, values=change.values
        )

    are_all_saved = True
    for list_id, change in changes.items():
        if not change.has_answers or "leave" in change.actions:
            continue
        work = partial(save_answers, list_id=list_id, change=change)
        try:
            are_all_saved &= await CHANGES_BY_LIST.run(list_id, state.transact, work)
        except DomainError as error:
            if error.code == mailing.FIELD_VALUE.code:
                return RefusedAnswers(form, list_id, error)
            if error.code != mailing.SUBSCRIPTION_NOT_FOUND.code:
                errors.append(error)
            are_all_saved = False
    return are_all_saved


async def _lift_opt_outs(
    request: Request,
    state: State,
    changes: Mapping[int, ListChanges],
    errors: list[DomainError],
) -> None:
    def lift_opt_out(uow: UnitOfWork, list_id: int, action: str) -> None:
        visit = find_visit(uow, request, state)
        own_lists.find_list(uow, visit, list_id)
        # ``get_list`` raises an error for an archived list, because archived lists accept no
        # members.
        mailing_list = lists.get_list(uow, list_id)
        LIFT_OPT_OUT[action](uow, mailing_list, visit.person, _build_actor(request, visit))

    for list_id, change in changes.items():
        for action in change.actions:
            if action in LIFT_OPT_OUT:
                work = partial(lift_opt_out, list_id=list_id, action=action)
                try:
                    await CHANGES_BY_LIST.run(list_id, state.transact, work)
                except DomainError as error:
                    errors.append(error)


def _build_actor(request: Request, visit: Visit) -> Actor:
    return actors.build_principal_actor(request, Principal(visit.person.id, Via.PAGE, None))


def _find_joined_list_ids(request: Request, state: State) -> list[int]:
    with state.resources.unit_of_work() as uow:
        return own_lists.find_joined_list_ids(uow, find_visit(uow, request, state))


def _render_refused_answers(request: Request, state: State, refused: RefusedAnswers) -> Response:
    with state.resources.unit_of_work() as uow:
        return _render_preferences(request, state, uow, refused.list_id, refused=refused)


def _render_preferences(
    request: Request,
    state: State,
    uow: UnitOfWork,
    opened_id: int | None,
    *,
    refused: RefusedAnswers | None = None,
    saved: str | None = None,
) -> Response:
    visit = find_visit(uow, request, state)
    form = build_form(uow, visit, get_reader_language(request), opened_id, refused)
    # The address of a subscription may differ from the account's address.
    emails = (each.own.subscription.email for each in form.lists)
    return render_visit_page(
        request,
        state,
        own_lists.read_look(uow, visit),
        "preferences.html",
        status=200 if refused is None else 422,
        form=form,
        email=next(filter(None, emails), visit.person.email),
        saved=saved,
    )


@router.get(page_urls.OWN_DATA_PATH, dependencies=[PUBLIC])
def show_own_data(request: Request, state: StateOf, uow: Transaction) -> Response:
    language = get_reader_language(request)
    visit = find_visit(uow, request, state)
    known = known_data.read_known_data(uow, visit)
    first, *others = known["lists"] or [{}]
    return render_visit_page(
        request,
        state,
        own_lists.read_look(uow, visit),
        "own_data.html",
        known=known,
        shared=[
            name
            for name in _SHARED_FACTS
            if others and first[name] and all(each[name] == first[name] for each in others)
        ],
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
