"""Assigns columns of a file to the owner's fields."""

import re
import unicodedata
from collections.abc import Collection, Iterable, Sequence

from core.errors.imports import IMPORT_MAPPING_FIELD, IMPORT_MAPPING_TYPE
from models import FieldType, MemberField
from services.subscriptions import misleading_texts
from services.subscriptions.fields import (
    KEY_PATTERN,
    MAX_KEY_CHARACTERS,
    MAX_LABEL_CHARACTERS,
)
from services.subscriptions.imports.columns.column_layout import (
    FIELD_PREFIX,
    ORIGIN_PREFIX,
    Basis,
    ColumnLayout,
)
from services.subscriptions.imports.columns.column_vocabulary import OWN_COLUMNS, find_concept
from services.subscriptions.imports.columns.field_values import guess_type
from services.subscriptions.imports.columns.known_words import normalise_word

# The maximum number of new fields that are proposed for a file, because a file may have a hundred
# thousand columns. The maximum number of active fields per owner is lower than this maximum.
MAX_NEW_FIELDS = 500
# The types of fields that an import can create. An import can't create a choice field, because the
# owner must define its choices first.
NEW_TYPES = (FieldType.TEXT, FieldType.NUMBER, FieldType.DATE, FieldType.BOOLEAN)

_NOT_OF_A_KEY = re.compile(r"[^a-z0-9]+")

Records = Sequence[Sequence[str]]


def match_fields(
    layout: ColumnLayout, columns: Collection[int], fields: Sequence[MemberField]
) -> None:
    """Assign the owner's fields to columns according to the column mapping or the headers.

    Each field is assigned to at most one column. A header that exactly matches a field's key or
    label takes precedence over a similar header. A similar header takes precedence over a header
    with the same meaning, such as "Ort" for "City".
    """
    by_key = {field.key: field for field in fields}
    for index in columns:
        mapped_key, type_ = layout.mapped_fields.get(index, ("", ""))
        if (mapped := by_key.get(mapped_key)) is not None:
            if type_ not in ("", mapped.type):
                rule = f"This field already has the type {mapped.type}."
                raise IMPORT_MAPPING_TYPE(type=type_[:60], key=mapped.key, rule=rule)
            layout.fields[index] = mapped
    for normalise in (str, normalise_word, find_concept):
        by_name: dict[str, MemberField] = {}
        for field in fields:
            for text in (field.key, field.label):
                if name := normalise(text):
                    by_name.setdefault(name, field)
        for index in _find_nameable_columns(layout, columns):
            match = by_name.get(normalise(_get_name(layout, index)))
            if match is not None and match not in layout.fields.values():
                layout.fields[index] = match


def propose_fields(
    layout: ColumnLayout, columns: Collection[int], taken_keys: Collection[str], sample: Records
) -> dict[int, MemberField]:
    """Propose new fields for the columns without a role.

    At most ``MAX_NEW_FIELDS`` fields are proposed, with negative ids.
    """
    new_fields: dict[int, MemberField] = {}
    keys = {*taken_keys}
    for index in columns:
        if index in layout.mapped_fields and index not in layout.fields:
            mapped_key, _ = layout.mapped_fields[index]
            if KEY_PATTERN.match(mapped_key) is None:
                raise IMPORT_MAPPING_FIELD(key=mapped_key[:60])
            new_fields[index] = _build_field(layout, index, mapped_key, sample)
            keys.add(mapped_key)
    for index in _find_unknown_columns(layout, columns):
        if len(new_fields) >= MAX_NEW_FIELDS:
            break
        cells = _get_cells(sample, index)
        # Skip blank columns, which result from a comma at the end of each line.
        is_blank = not layout.header[index].strip() and not any(map(str.strip, cells))
        word = normalise_word(layout.header[index])
        if is_blank or (layout.product == "pressroom" and word in OWN_COLUMNS):
            continue
        key = find_free_key(_get_name(layout, index), keys)
        keys.add(key)
        new_fields[index] = _build_field(layout, index, key, sample)
    return new_fields


def find_free_key(name: str, taken_keys: Collection[str]) -> str:
    decomposed = unicodedata.normalize("NFKD", name[: 10 * MAX_KEY_CHARACTERS]).casefold()
    plain = "".join(c for c in decomposed if not unicodedata.combining(c))
    key = _NOT_OF_A_KEY.sub("_", plain).strip("_")[:MAX_KEY_CHARACTERS].rstrip("_")
    if not key or not key[0].isalpha():
        key = f"field_{key}".rstrip("_")[:MAX_KEY_CHARACTERS]
    number = 1
    free_key = key
    while free_key in taken_keys:
        number += 1
        ending = f"_{number}"
        free_key = key[: MAX_KEY_CHARACTERS - len(ending)] + ending
    return free_key


def _find_nameable_columns(layout: ColumnLayout, columns: Iterable[int]) -> list[int]:
    """Return the columns whose header may be the key or the label of one of the owner's fields.

    The result includes a status column if Pressroom recognised the column only by its cells or by
    single words in its header. Before Pressroom recognised such a header, an owner may have created
    a field with the same name.
    """
    meanings = layout.describe_roles()
    uncertain = {
        index
        for index, column in layout.consent.items()
        if column.basis is not Basis.KNOWN and meanings[index] == "status"
    }
    once_unknown = {
        index
        for index, role in meanings.items()
        if role.startswith((ORIGIN_PREFIX, "joined_at")) and index not in layout.mapped
    }
    nameable = {*_find_unknown_columns(layout, columns)} | uncertain | once_unknown
    return [index for index in columns if index in nameable]


def _find_unknown_columns(layout: ColumnLayout, columns: Iterable[int]) -> list[int]:
    known = {*layout.describe_roles(), *layout.mapped_fields, *layout.ignored}
    return [index for index in columns if index not in known]


def _build_field(layout: ColumnLayout, index: int, key: str, sample: Records) -> MemberField:
    text = " ".join(_get_name(layout, index)[: 10 * MAX_LABEL_CHARACTERS].split())
    label = "".join(filter(str.isprintable, text))[:MAX_LABEL_CHARACTERS].strip()
    if not label or not misleading_texts.is_fit_for_label(label):
        label = f"Column {index + 1}"
    _, mapped_type = layout.mapped_fields.get(index, ("", ""))
    if mapped_type and mapped_type not in NEW_TYPES:
        rule = f"The type of a new field must be one of {', '.join(NEW_TYPES)}."
        raise IMPORT_MAPPING_TYPE(type=mapped_type[:60], key=key, rule=rule)
    type_ = FieldType(mapped_type) if mapped_type else guess_type(_get_cells(sample, index))
    return MemberField(id=-index - 1, key=key, label=label, type=type_, choices=[])


def _get_name(layout: ColumnLayout, index: int) -> str:
    return layout.header[index].strip().removeprefix(FIELD_PREFIX)


def _get_cells(sample: Records, index: int) -> list[str]:
    return [record[index] for record in sample if index < len(record)]
