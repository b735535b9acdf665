"""The form by which an owner changes a member, as the API's body."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from api.access.page_sessions import FormFields
from api.console.typed_forms import TypedForm, body_of_form, text_or_none
from api.schemas.subscriptions import MemberChanges, SubscriptionRecord
from core.errors import FieldProblem
from core.refusals.attributes import FIELD_VALUE, TAG_TOO_MANY_OF_MEMBER
from models import FieldType, MemberField
from services.mailing.attributes import field_values
from services.mailing.attributes.field_values import FieldValue, ValueRefused

# Beside which field a refusal stands that names none.
PLACES = {TAG_TOO_MANY_OF_MEMBER.code: "tags"}
_OF_FIELD = "fields."


def member_form(shown: SubscriptionRecord) -> TypedForm:
    """The form with what the member has now."""
    typed = {
        "name": shown.name or "",
        "type": shown.type,
        "paid_expiry": _day_of(shown.paid_expiry),
        "tags": ", ".join(shown.tags or ()),
    }
    values = shown.fields or {}
    typed |= {f"{_OF_FIELD}{key}": field_values.as_text(each) for key, each in values.items()}
    return TypedForm(typed)


def member_changes(
    form: FormFields, shown: SubscriptionRecord, own: Iterable[MemberField]
) -> MemberChanges:
    """What the form has other than the member has it; raises ``body.invalid``, ``field.value``."""
    values: dict[str, Any] = {
        "name": text_or_none(form, "name"),
        "type": form.get("type", ""),
        "tags": [each for part in form.get("tags", "").split(",") if (each := part.strip())],
    }
    now: Mapping[str, Any] = {"name": shown.name, "type": shown.type, "tags": shown.tags}
    changed = {name: value for name, value in values.items() if value != now[name]}
    # A day stands for its first moment; one that was not touched keeps its time of day.
    day = form.get("paid_expiry", "").strip()
    if day != _day_of(shown.paid_expiry):
        changed["paid_expiry"] = f"{day}T00:00:00Z" if day else None
    had = shown.fields or {}
    given = field_changes(form, own)
    fields = {key: value for key, value in given.items() if value != had.get(key)}
    return body_of_form(MemberChanges, {**changed, **({"fields": fields} if fields else {})})


def field_changes(form: FormFields, own: Iterable[MemberField]) -> dict[str, FieldValue | None]:
    """The values of fields that a form has, as a program would send them; ``None`` for no value.

    Raises ``field.value``, which names each place.
    """
    found: dict[str, FieldValue | None] = {}
    problems = []
    for field in own:
        name = f"{_OF_FIELD}{field.key}"
        if name not in form:
            continue
        try:
            found[field.key] = field_values.stored_of_text(field, form[name])
        except ValueRefused as error:
            problems.append(FieldProblem(f"body.{name}", "field.value", str(error)))
    if problems:
        rules = "; ".join(f"{each.field}: {each.message}" for each in problems)
        raise FIELD_VALUE(rules=rules, problems=tuple(problems))
    return found


def field_inputs(own: Iterable[MemberField], form: TypedForm) -> list[dict[str, Any]]:
    """The owner's fields as the template draws them.

    A choice that was taken away stays one of the choices of a member who has it.
    """
    return [
        {
            "name": (name := f"{_OF_FIELD}{each.key}"),
            "label": each.label,
            "hint": each.description or "",
            "type": _INPUTS.get(each.type, "text"),
            "choices": _choices(each, form.typed.get(name, "")),
        }
        for each in own
    ]


_INPUTS = {FieldType.NUMBER.value: "number", FieldType.DATE.value: "date"}


def _choices(field: MemberField, value: str) -> list[tuple[str, str]]:
    """Of a field with few values; none for one that is typed."""
    if field.type == FieldType.BOOLEAN:
        return [("", ""), ("true", "Yes"), ("false", "No")]
    if field.type != FieldType.CHOICE:
        return []
    names = field.choices if value in {"", *field.choices} else [*field.choices, value]
    return [("", ""), *((each, each) for each in names)]


def _day_of(moment: datetime | None) -> str:
    return "" if moment is None else moment.date().isoformat()
