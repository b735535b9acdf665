"""What the columns of an import's file become: found once, and kept with the import.

Another process that reads the file again finds the same, and a field is made once.
"""

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from sqlalchemy import select

from core.refusals.imports import IMPORT_MAPPING_FIELD, IMPORT_TOO_MANY_FIELDS
from models import FieldType, MemberField, MemberImport
from services.mailing.attributes import fields
from services.mailing.attributes.fields import MAX_FIELDS
from services.mailing.imports import shown_cells
from services.mailing.imports.mapping import field_columns
from services.mailing.imports.mapping.columns import IGNORED, MAX_COLUMN_NAMES_SHOWN, ColumnLayout
from services.mailing.imports.shown_cells import ImportSamples
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

# A file of more columns is read whole, and its result names the first.
MAX_COLUMNS_SHOWN = 500
MAX_COLUMN_NAME_CHARACTERS = 200

Sample = Sequence[Sequence[str]]


class ColumnPlan:
    """The plan of one import."""

    def __init__(self, resources: Resources, task: MemberImport) -> None:
        self._resources = resources
        self._import_id = task.id
        # Of the fields that some column has, by the fields' ids as text.
        self.keys: dict[str, str] = {}

    def note_header(self, header: Sequence[str], sample: Sample) -> None:
        """Keep the columns before they are known, with some cells of each.

        The owner of a file that is refused since nobody knows which column has the addresses can
        say so then.
        """
        with self._resources.unit_of_work() as uow:
            task = uow.session.get_one(MemberImport, self._import_id)
            if task.columns is None:
                task.columns = _described(ColumnLayout(header), 0, {})
                samples = ImportSamples.of(header, sample, (), {})
                shown_cells.keep(self._resources, task, samples)

    def find_fields(self, layout: ColumnLayout, sample: Sample) -> None:
        """Give columns of the layout to the owner's fields, and make new ones if the import asks.

        Raises ``import.mapping_field``, ``import.too_many_fields``.
        """
        with self._resources.unit_of_work() as uow:
            query = select(MemberImport).where(MemberImport.id == self._import_id)
            task = uow.session.scalars(query.with_for_update(key_share=True)).one()
            kept: Mapping[str, Any] = task.columns or {}
            self._take_kept(uow, task, layout, kept.get("fields", {}))
            covered = kept.get("covered", 0)
            # A dry run keeps no fields that it would make.
            after = 0 if task.dry_run and sample else covered
            made: dict[int, MemberField] = {}
            if after < len(layout.header):
                made = self._find(uow, task, layout, sample, after)
            creates = {int(index): type_ for index, type_ in kept.get("creates", {}).items()}
            creates |= {index: field.type for index, field in made.items()}
            self.keys = {str(field.id): field.key for field in layout.fields.values()}
            task.columns = _described(layout, max(covered, len(layout.header)), creates)

    def _take_kept(
        self, uow: UnitOfWork, task: MemberImport, layout: ColumnLayout, kept: Mapping[str, int]
    ) -> None:
        """The fields that were found before, one that was retired since among them."""
        query = select(MemberField).where(
            MemberField.id.in_([*kept.values()]), MemberField.user_id == task.user_id
        )
        found = {field.id: field for field in uow.session.scalars(query)} if kept else {}
        for index, field_id in kept.items():
            if field_id in found and int(index) < len(layout.header):
                layout.fields[int(index)] = found[field_id]

    def _find(
        self, uow: UnitOfWork, task: MemberImport, layout: ColumnLayout, sample: Sample, after: int
    ) -> dict[int, MemberField]:
        """Find the fields of the columns from this one; those that were, or would be, made."""
        columns = range(after, len(layout.header))
        living = fields.list_of(uow, task.user_id)
        field_columns.match_fields(layout, columns, living)
        if not task.create_fields:
            for index, key in layout.wanted_fields.items():
                if index not in layout.fields:
                    raise IMPORT_MAPPING_FIELD(key=key[:60])
            return {}
        others = [field for field in layout.fields.values() if field.id <= 0]
        keys = [field.key for field in (*living, *others)]
        new = field_columns.new_fields(layout, columns, keys, sample)
        room = max(0, MAX_FIELDS - len(living) - len(others))
        if len(new) > room and not after:
            shown = [repr(field.label[:60]) for field in new.values()][:MAX_COLUMN_NAMES_SHOWN]
            raise IMPORT_TOO_MANY_FIELDS(count=len(new), room=room, names=", ".join(shown))
        # Of columns that come late there may be no room for the last; the result names those.
        new = dict(islice(new.items(), room))
        for index, field in new.items():
            layout.fields[index] = field if task.dry_run else _made(uow, task.user_id, field)
        return {index: layout.fields[index] for index in new}


def _made(uow: UnitOfWork, owner_id: int, field: MemberField) -> MemberField:
    type_ = FieldType(field.type)
    return fields.create(uow, owner_id, type=type_, key=field.key, label=field.label)


def _described(layout: ColumnLayout, covered: int, creates: Mapping[int, str]) -> dict[str, Any]:
    """The plan as it is kept: what the owner is shown, and what reading the file again needs."""
    meanings = layout.meanings()
    names = [name[:MAX_COLUMN_NAME_CHARACTERS] for name in layout.header]
    ignored = (name for index, name in enumerate(names) if index not in meanings)
    return {
        "columns": [
            {
                "name": name,
                "becomes": meanings.get(index, IGNORED),
                **({"creates": creates[index]} if index in creates else {}),
            }
            for index, name in enumerate(names[:MAX_COLUMNS_SHOWN])
        ],
        "ignored_columns": [*islice(ignored, MAX_COLUMNS_SHOWN)],
        "count": len(names),
        "covered": covered,
        "fields": {str(index): field.id for index, field in layout.fields.items() if field.id > 0},
        "creates": {str(index): type_ for index, type_ in creates.items()},
    }
