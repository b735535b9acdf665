"""The columns without another meaning: which of them hold fields, and which may become new ones."""

import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from core.refusals.imports import IMPORT_MAPPING_FIELD
from models import MemberField
from services.mailing.attributes.fields import MAX_KEY_CHARACTERS, MAX_LABEL_CHARACTERS
from services.mailing.imports.mapping import header_words
from services.mailing.imports.mapping.cell_values import guess_type
from services.mailing.imports.mapping.columns import FIELD_PREFIX, ColumnLayout
from services.mailing.imports.mapping.products import OWN_COLUMNS

# A file may have a hundred thousand columns.
MAX_NEW_FIELDS = 500

_KEY = re.compile(r"[a-z][a-z0-9_]{0,39}\Z", re.ASCII)
_NOT_OF_A_KEY = re.compile(r"[^a-z0-9]+")


def match_fields(
    layout: ColumnLayout, columns: Collection[int], fields: Sequence[MemberField]
) -> None:
    """Give these columns to the fields that the mapping or their own names name.

    A field takes one column; a column of exactly its key or label comes first.
    """
    by_key = {field.key: field for field in fields}
    for index in columns:
        if (wanted := by_key.get(layout.wanted_fields.get(index, ""))) is not None:
            layout.fields[index] = wanted
    for fold in (str, header_words.key):
        named = _by_name(fields, fold)
        for index in unknown_columns(layout, columns):
            field = named.get(fold(_name(layout, index)))
            if field is not None and field not in layout.fields.values():
                layout.fields[index] = field


def _by_name(
    fields: Iterable[MemberField], fold: Callable[[str], str]
) -> Mapping[str, MemberField]:
    found: dict[str, MemberField] = {}
    for field in fields:
        for name in (field.key, field.label):
            if folded := fold(name):
                found.setdefault(folded, field)
    return found


def unknown_columns(layout: ColumnLayout, columns: Iterable[int]) -> list[int]:
    """Those of these columns that mean nothing yet, and that the mapping does not name."""
    known = {*layout.meanings(), *layout.wanted_fields, *layout.passed_over}
    return [index for index in columns if index not in known]


def new_fields(
    layout: ColumnLayout,
    columns: Collection[int],
    taken: Collection[str],
    sample: Sequence[Sequence[str]],
) -> dict[int, MemberField]:
    """The fields that the rest of these columns would become, with ids below 0.

    At most ``MAX_NEW_FIELDS``, which is more than any owner may have. ``taken``: the keys of the
    owner's fields. Raises ``import.mapping_field``.
    """
    found: dict[int, MemberField] = {}
    keys = {*taken}
    for index in columns:
        wanted = layout.wanted_fields.get(index)
        if wanted is not None and index not in layout.fields:
            found[index] = _new_field(layout, index, check_key(wanted), sample)
            keys.add(wanted)
    for index in unknown_columns(layout, columns):
        if len(found) >= MAX_NEW_FIELDS:
            break
        cells = _cells(sample, index)
        is_blank = not layout.header[index].strip() and not any(map(str.strip, cells))
        name = header_words.key(layout.header[index])
        # A blank column is that after a comma at the end of each line.
        if is_blank or (layout.product == "pressroom" and name in OWN_COLUMNS):
            continue
        key = free_key(_name(layout, index), keys)
        keys.add(key)
        found[index] = _new_field(layout, index, key, sample)
    return found


def check_key(key: str) -> str:
    """The key; raises ``import.mapping_field`` for text that can't be one."""
    if _KEY.match(key) is None:
        raise IMPORT_MAPPING_FIELD(key=key[:60])
    return key


def _new_field(
    layout: ColumnLayout, index: int, key: str, sample: Sequence[Sequence[str]]
) -> MemberField:
    shown = " ".join(_name(layout, index)[: 10 * MAX_LABEL_CHARACTERS].split())
    label = "".join(filter(str.isprintable, shown))[:MAX_LABEL_CHARACTERS].strip()
    label, type_ = label or f"Column {index + 1}", guess_type(_cells(sample, index))
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
