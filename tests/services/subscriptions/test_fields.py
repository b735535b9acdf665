from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from models import FieldType, MemberField
from services.subscriptions.fields import MAX_NUMBER, format_value, normalise_value, parse_value

CHOICES = ["Red", "red", "Dark blue"]


VALUES: dict[FieldType, st.SearchStrategy[Any]] = {
    FieldType.TEXT: st.text(st.characters(exclude_characters="\0"), max_size=1000),
    FieldType.NUMBER: st.one_of(
        st.integers(-MAX_NUMBER, MAX_NUMBER), st.floats(-MAX_NUMBER, MAX_NUMBER, allow_nan=False)
    ),
    FieldType.DATE: st.dates().map(lambda day: day.isoformat()),
    FieldType.BOOLEAN: st.booleans(),
    FieldType.CHOICE: st.sampled_from(CHOICES),
}


@given(st.data(), st.sampled_from(FieldType))
def test_field_value_survives_export_and_import_unchanged(
    data: st.DataObject, type_: FieldType
) -> None:
    choices = CHOICES if type_ is FieldType.CHOICE else []
    field = MemberField(key="thing", type=type_, choices=choices)
    value = normalise_value(field, data.draw(VALUES[type_]))
    if value is not None:
        parsed_value = parse_value(field, format_value(value))
        assert (parsed_value, type(parsed_value)) == (value, type(value))
        assert normalise_value(field, value) == value
