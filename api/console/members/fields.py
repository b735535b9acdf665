"""The fields of an owner: data of members of all their lists, besides name and address."""

from typing import Any

from fastapi.responses import Response

from api.bodies.page_forms import FormFields
from api.console.assets import CONSOLE_PATH
from api.console.typed_forms import TypedForm, body_of_form, lines_of, text_or_none
from api.console.visits import ConsoleVisit, FormVisit, Visit, console_router
from api.record_ids import PathId
from api.schemas.fields import FieldChanges, NewField
from api.state import Transaction
from core.errors import DomainError
from core.errors.mailing import FIELD_KEY_TAKEN
from models import FieldType
from services.subscriptions import field_types, fields

FIELDS_PATH = f"{CONSOLE_PATH}/fields"
router = console_router(FIELDS_PATH)

TYPES = {
    FieldType.TEXT: "Text",
    FieldType.NUMBER: "Number",
    FieldType.DATE: "Date",
    FieldType.BOOLEAN: "Yes or no",
    FieldType.CHOICE: "One of some choices",
}
_PLACES = {FIELD_KEY_TAKEN.code: "key"}


@router.get("")
def show_fields(visit: Visit, uow: Transaction) -> Response:
    return visit.page("fields.html", fields=fields.list_of(uow, visit.user_id), types=TYPES)


@router.get("/new")
def show_new_field(visit: Visit) -> Response:
    return _form_page(visit, TypedForm({"type": FieldType.TEXT}))


@router.post("/new")
def make_field(visit: FormVisit) -> Response:
    try:
        values = {**_typed(visit.form), "type": visit.form.get("type", "")}
        body = body_of_form(NewField, values)
        with visit.unit_of_work() as uow:
            fields.create(uow, visit.user_id, **body.columns())
    except DomainError as error:
        return _form_page(visit, visit.refused(error, _PLACES))
    return visit.done(FIELDS_PATH, f"The field “{body.label}” is created.")


@router.get("/{field_id}")
def show_field(visit: Visit, uow: Transaction, field_id: PathId) -> Response:
    found = fields.get(uow, visit.user_id, field_id)
    typed = {name: getattr(found, name) or "" for name in ("key", "label", "description", "type")}
    typed["choices"] = "\n".join(found.choices)
    typed |= {"public": "on"} if found.is_public else {}
    return _form_page(visit, TypedForm(typed), field_id)


@router.post("/{field_id}")
def change_field(visit: FormVisit, field_id: PathId) -> Response:
    """Change the field, and with its type all values of it."""
    with visit.unit_of_work() as uow:
        # Look for the field first, so that another owner's field is 404 even if the form is
        # invalid.
        fields.get(uow, visit.user_id, field_id)
    try:
        type_ = {"type": visit.form["type"]} if "type" in visit.form else {}
        body = body_of_form(FieldChanges, {**_typed(visit.form), **type_})
        with visit.unit_of_work() as uow:
            field_types.change(uow, visit.user_id, field_id, body.columns())
    except DomainError as error:
        return _form_page(visit, visit.refused(error, _PLACES), field_id)
    return visit.done(FIELDS_PATH, f"The field “{body.label}” is changed.")


@router.post("/{field_id}/retire")
def retire_field(visit: FormVisit, uow: Transaction, field_id: PathId) -> Response:
    """Hide the field; members keep their values, unseen."""
    label = fields.get(uow, visit.user_id, field_id).label
    fields.retire(uow, visit.user_id, field_id)
    return visit.done(FIELDS_PATH, f"The field “{label}” is retired.")


def _typed(form: FormFields) -> dict[str, Any]:
    return {
        "key": form.get("key", "").strip(),
        "label": form.get("label", ""),
        "description": text_or_none(form, "description"),
        "choices": lines_of(form, "choices"),
        "public": "public" in form,
    }


def _form_page(visit: ConsoleVisit, form: TypedForm, field_id: int | None = None) -> Response:
    types = [(each.value, words, "") for each, words in TYPES.items()]
    return visit.form_page("field.html", form, field_id=field_id, types_with_hints=types)
