"""Assigns columns of a file to the owner's fields."""

import re
import unicodedata
from collections.abc import Collection, Iterable, Sequence

from core.errors.imports import IMPORT_MAPPING_FIELD, IMPORT_MAPPING_TYPE
from models import FieldType, MemberField
from services.subscriptions import branding
from services.subscriptions.fields import (
    KEY_FORM,
    MAX_KEY_CHARACTERS,
    MAX_LABEL_CHARACTERS,
)
from services.subscriptions.imports.column_layout import FIELD_PREFIX, Basis, ColumnLayout
from services.subscriptions.imports.column_vocabulary import OWN_COLUMNS
from services.subscriptions.imports.field_values import guess_type
from services.subscriptions.imports.known_words import key

# A file may have a hundred thousand columns.
MAX_NEW_FIELDS = 500

# A field of choices has to be made with its choices first.
NEW_TYPES = (FieldType.TEXT, FieldType.NUMBER, FieldType.DATE, FieldType.BOOLEAN)

_NOT_OF_A_KEY = re.compile(r"[^a-z0-9]+")


def match_fields(
    layout: ColumnLayout, columns: Collection[int], fields: Sequence[MemberField]
) -> None:
    """Use the mapping or the headers to assign these columns to the owner's fields.

    At most one column is assigned to each field. A header that equals the field's key or label has
    priority. Raises ``import.mapping_type``.
    """
    by_key = {field.key: field for field in fields}
    for index in columns:
        key_wanted, type_ = layout.wanted.get(index, ("", ""))
        if (wanted := by_key.get(key_wanted)) is not None:
            if type_ not in ("", wanted.type):
                rule = f"The field's type is {wanted.type}."
                raise IMPORT_MAPPING_TYPE(type=type_[:60], key=wanted.key, rule=rule)
            layout.fields[index] = wanted
    for fold in (str, key):
        named: dict[str, MemberField] = {}
        for field in fields:
            for name in (field.key, field.label):
                if folded := fold(name):
                    named.setdefault(folded, field)
        for index in _nameable_columns(layout, columns):
            found = named.get(fold(_name(layout, index)))
            if found is not None and found not in layout.fields.values():
                layout.fields[index] = found


def _nameable_columns(layout: ColumnLayout, columns: Iterable[int]) -> list[int]:
    """Return the columns whose header may be the name of a field of the owner.

    A consent column may also hold a field of the owner if it was recognised only by its cells or by
    single words in its header.
    """
    meanings = layout.meanings()
    uncertain = {
        index
        for index, column in layout.consent.items()
        if column.basis is not Basis.KNOWN and meanings[index] == "status"
    }
    others = {*unknown_columns(layout, columns)} | uncertain
    return [index for index in columns if index in others]


def unknown_columns(layout: ColumnLayout, columns: Iterable[int]) -> list[int]:
    """Return the columns that mean nothing yet, and that the mapping does not name."""
    known = {*layout.meanings(), *layout.wanted, *layout.passed_over}
    return [index for index in columns if index not in known]


def new_fields(
    layout: ColumnLayout,
    columns: Collection[int],
    taken: Collection[str],
    sample: Sequence[Sequence[str]],
) -> dict[int, MemberField]:
    """The fields that the rest of these columns would become, with ids below 0.

    At most ``MAX_NEW_FIELDS``, which is more than any owner may have. ``taken``: the keys of the
    owner's fields. Raises ``import.mapping_field``, ``import.mapping_type``.
    """
    found: dict[int, MemberField] = {}
    keys = {*taken}
    for index in columns:
        if index in layout.wanted and index not in layout.fields:
            wanted, _ = layout.wanted[index]
            if KEY_FORM.match(wanted) is None:
                raise IMPORT_MAPPING_FIELD(key=wanted[:60])
            found[index] = _new_field(layout, index, wanted, sample)
            keys.add(wanted)
    for index in unknown_columns(layout, columns):
        if len(found) >= MAX_NEW_FIELDS:
            break
        cells = _cells(sample, index)
        is_blank = not layout.header[index].strip() and not any(map(str.strip, cells))
        name = key(layout.header[index])
        # A blank column is that after a comma at the end of each line.
        if is_blank or (layout.product == "pressroom" and name in OWN_COLUMNS):
            continue
        made = free_key(_name(layout, index), keys)
        keys.add(made)
        found[index] = _new_field(layout, index, made, sample)
    return found


def _new_field(
    layout: ColumnLayout, index: int, key: str, sample: Sequence[Sequence[str]]
) -> MemberField:
    shown = " ".join(_name(layout, index)[: 10 * MAX_LABEL_CHARACTERS].split())
    label = "".join(filter(str.isprintable, shown))[:MAX_LABEL_CHARACTERS].strip()
    if not label or not branding.is_fit_for_label(label):
        label = f"Column {index + 1}"
    _, wanted = layout.wanted.get(index, ("", ""))
    if wanted and wanted not in NEW_TYPES:
        rule = f"A new field has one of {', '.join(NEW_TYPES)}."
        raise IMPORT_MAPPING_TYPE(type=wanted[:60], key=key, rule=rule)
    type_ = FieldType(wanted) if wanted else guess_type(_cells(sample, index))
    return MemberField(id=-index - 1, key=key, label=label, type=type_, choices=[])


def _name(layout: ColumnLayout, index: int) -> str:
    return layout.header[index].strip().removeprefix(FIELD_PREFIX)


def _cells(sample: Sequence[Sequence[str]], index: int) -> list[str]:
    return [record[index] for record in sample if index < len(record)]


def free_key(name: str, taken: Collection[str]) -> str:
    """A key made of the column's name that no field has."""
    plain = unicodedata.normalize("NFKD", name[: 10 * MAX_KEY_CHARACTERS]).casefold()
    key = _NOT_OF_A_KEY.sub("_", "".join(c for c in plain if not unicodedata.combining(c)))
    key = key.strip("_")[:MAX_KEY_CHARACTERS].rstrip("_")
    if not key or not key[0].isalpha():
        key = f"field_{key}".rstrip("_")[:MAX_KEY_CHARACTERS]
    number, free = 1, key
    while free in taken:
        number += 1
        ending = f"_{number}"
        free = key[: MAX_KEY_CHARACTERS - len(ending)] + ending
    return free
