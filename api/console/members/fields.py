"""Pages on which an owner defines member fields, which exist for the members of all lists."""

from typing import Any

from fastapi.responses import Response

from api.bodies.page_forms import FormFields
from api.console.assets import CONSOLE_PATH
from api.console.requests import (
    ConsoleRequest,
    EditForm,
    EditPage,
    EmptyForm,
    FiguresPage,
    build_router,
    shows_errors_on,
)
from api.console.typed_forms import TypedForm, parse_body, read_lines, read_text
from api.record_ids import PathId
from api.schemas.fields import FieldChanges, NewField
from api.state import Transaction
from core.errors.mailing import FIELD_KEY_TAKEN
from models import FieldType, MemberField
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
def show_fields(console: FiguresPage, uow: Transaction) -> Response:
    return console.render_page(
        "fields.html", fields=fields.list_fields(uow, console.account_id), types=TYPE_LABELS
    )


@router.get("/new")
def show_new_field(console: EditPage, form: EmptyForm) -> Response:
    return _render_field_form(console, form.fill({"type": FieldType.TEXT}))


@router.post("/new")
@shows_errors_on(show_new_field, _PLACES)
def create_field(console: EditForm, uow: Transaction) -> Response:
    values = {**_read_values(console.form), "type": console.form.get("type", "")}
    body = parse_body(NewField, values)
    fields.create_field(uow, console.account_id, **body.columns())
    return console.redirect(FIELDS_PATH, f"The field “{body.label}” was created.")


@router.get("/{field_id}")
def show_field(console: EditPage, uow: Transaction, field_id: PathId, form: EmptyForm) -> Response:
    field = fields.get_field(uow, console.account_id, field_id)
    inputs = {name: getattr(field, name) or "" for name in ("key", "label", "description", "type")}
    inputs["choices"] = "\n".join(field.choices)
    inputs |= {"public": "on"} if field.is_public else {}
    return _render_field_form(console, form.fill(inputs), field)


@router.post("/{field_id}")
@shows_errors_on(show_field, _PLACES)
def change_field(console: EditForm, uow: Transaction, field_id: PathId) -> Response:
    """Change a field. If the type of a member field changes, its values are converted."""
    type_ = {"type": console.form["type"]} if "type" in console.form else {}
    body = parse_body(FieldChanges, {**_read_values(console.form), **type_})
    field_types.change_field_and_type(uow, console.account_id, field_id, body.columns())
    return console.redirect(FIELDS_PATH, f"The field “{body.label}” was changed.")


@router.post("/{field_id}/retire")
def retire_field(console: EditForm, uow: Transaction, field_id: PathId) -> Response:
    """Hide a member field, but keep its values in the database."""
    label = fields.get_field(uow, console.account_id, field_id).label
    fields.retire_field(uow, console.account_id, field_id)
    return console.redirect(FIELDS_PATH, f"The field “{label}” was retired.")


def _read_values(form: FormFields) -> dict[str, Any]:
    return {
        "key": form.get("key", "").strip(),
        "label": form.get("label", ""),
        "description": read_text(form, "description"),
        "choices": read_lines(form, "choices"),
        "public": "public" in form,
    }


def _render_field_form(
    console: ConsoleRequest, form: TypedForm, field: MemberField | None = None
) -> Response:
    return console.render_page(
        "field.html",
        form,
        field_id=field and field.id,
        field_label=field.label if field else "",
        types_with_hints=[(each.value, words, "") for each, words in TYPE_LABELS.items()],
    )
