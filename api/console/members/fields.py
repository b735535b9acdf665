"""Pages on which an owner defines member fields, which exist for the members of all lists."""

from typing import Any

from fastapi.responses import Response

from api.bodies.page_forms import FormFields
from api.console.assets import CONSOLE_PATH
from api.console.requests import Console, ConsoleForm, ConsoleRequest, build_router
from api.console.typed_forms import TypedForm, parse_body, read_lines, read_text
from api.record_ids import PathId
from api.schemas.fields import FieldChanges, NewField
from api.state import Transaction
from core.errors import DomainError
from core.errors.mailing import FIELD_KEY_TAKEN
from models import FieldType
from services.subscriptions import field_types, fields

FIELDS_PATH = f"{CONSOLE_PATH}/fields"
router = build_router(FIELDS_PATH)

TYPE_LABELS = {
    FieldType.TEXT: "Text",
    FieldType.NUMBER: "Number",
    FieldType.DATE: "Date",
    FieldType.BOOLEAN: "Yes or no",
    FieldType.CHOICE: "One of several choices",
}
# Maps an error code to the form field that shows the error.
_PLACES = {FIELD_KEY_TAKEN.code: "key"}


@router.get("")
def show_fields(console: Console, uow: Transaction) -> Response:
    return console.render_page(
        "fields.html", fields=fields.list_fields(uow, console.user_id), types=TYPE_LABELS
    )


@router.get("/new")
def show_new_field(console: Console) -> Response:
    return _render_field_form(console, TypedForm({"type": FieldType.TEXT}))


@router.post("/new")
def create_field(console: ConsoleForm) -> Response:
    try:
        values = {**_read_values(console.form), "type": console.form.get("type", "")}
        body = parse_body(NewField, values)
        with console.unit_of_work() as uow:
            fields.create_field(uow, console.user_id, **body.columns())
    except DomainError as error:
        return _render_field_form(console, console.add_error(error, _PLACES))
    return console.redirect_with_notice(FIELDS_PATH, f"The field “{body.label}” was created.")


@router.get("/{field_id}")
def show_field(console: Console, uow: Transaction, field_id: PathId) -> Response:
    field = fields.get_field(uow, console.user_id, field_id)
    inputs = {name: getattr(field, name) or "" for name in ("key", "label", "description", "type")}
    inputs["choices"] = "\n".join(field.choices)
    inputs |= {"public": "on"} if field.is_public else {}
    return _render_field_form(console, TypedForm(inputs), field_id)


@router.post("/{field_id}")
def change_field(console: ConsoleForm, field_id: PathId) -> Response:
    """Change a field. If the type of a member field changes, its values are converted."""
    with console.unit_of_work() as uow:
        # Look up the member field before validating the form, so that the response for another
        # owner's field is always 404.
        fields.get_field(uow, console.user_id, field_id)
    try:
        type_ = {"type": console.form["type"]} if "type" in console.form else {}
        body = parse_body(FieldChanges, {**_read_values(console.form), **type_})
        with console.unit_of_work() as uow:
            field_types.change_field_and_type(uow, console.user_id, field_id, body.columns())
    except DomainError as error:
        return _render_field_form(console, console.add_error(error, _PLACES), field_id)
    return console.redirect_with_notice(FIELDS_PATH, f"The field “{body.label}” was changed.")


@router.post("/{field_id}/retire")
def retire_field(console: ConsoleForm, uow: Transaction, field_id: PathId) -> Response:
    """Hide a member field, but keep its values in the database."""
    label = fields.get_field(uow, console.user_id, field_id).label
    fields.retire_field(uow, console.user_id, field_id)
    return console.redirect_with_notice(FIELDS_PATH, f"The field “{label}” was retired.")


def _read_values(form: FormFields) -> dict[str, Any]:
    return {
        "key": form.get("key", "").strip(),
        "label": form.get("label", ""),
        "description": read_text(form, "description"),
        "choices": read_lines(form, "choices"),
        "public": "public" in form,
    }


def _render_field_form(
    console: ConsoleRequest, form: TypedForm, field_id: int | None = None
) -> Response:
    types = [(each.value, words, "") for each, words in TYPE_LABELS.items()]
    field_label = ""
    if field_id is not None:
        with console.unit_of_work() as uow:
            field_label = fields.get_field(uow, console.user_id, field_id).label
    return console.render_form(
        "field.html", form, field_id=field_id, field_label=field_label, types_with_hints=types
    )
