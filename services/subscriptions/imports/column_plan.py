"""The plan of a file's columns: the field that each column fills.

The plan is stored with the import. If another process reads the file again, it uses the same fields
and doesn't create them again.
"""

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from sqlalchemy import select

from core.errors import imports as errors
from models import FieldType, MemberField, MemberImport
from services.subscriptions import fields
from services.subscriptions.fields import MAX_FIELDS
from services.subscriptions.imports import field_columns
from services.subscriptions.imports.column_layout import (
    IGNORED,
    MAX_COLUMN_NAMES_SHOWN,
    ColumnLayout,
)
from services.subscriptions.imports.samples import ImportSamples, store_samples
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

# A file of more columns is read whole, and its result names the first.
MAX_COLUMNS_SHOWN = 500
MAX_COLUMN_NAME_CHARACTERS = 200
Sample = Sequence[Sequence[str]]


class ColumnPlan:
    """The meanings of a file's columns: another process finds the same, and makes no field anew."""

    def __init__(self, resources: Resources, task: MemberImport) -> None:
        self._resources = resources
        self._import_id = task.id
        # The keys of the fields that some column has, by the fields' ids as text.
        self.keys: dict[str, str] = {}

    def note_header(self, header: Sequence[str], sample: Sample) -> None:
        """Keep the columns before they are known, with some cells of each.

        The owner can say then which column has the addresses, if the file is refused for that.
        """
        with self._resources.unit_of_work() as uow:
            task = uow.session.get_one(MemberImport, self._import_id)
            if task.columns is None:
                task.columns = _described(ColumnLayout(header), 0, {})
                samples = ImportSamples.of(header, sample, (), {})
                store_samples(self._resources, task, samples)

    def find_fields(self, layout: ColumnLayout, sample: Sample) -> None:
        """Give columns of the layout to the owner's fields, and make new ones if the import asks.

        Raises ``import.mapping_field``, ``import.too_many_fields``.
        """
        with self._resources.unit_of_work() as uow:
            query = select(MemberImport).where(MemberImport.id == self._import_id)
            task = uow.session.scalars(query.with_for_update(key_share=True)).one()
            kept: Mapping[str, Any] = task.columns or {}
            # The fields that were found before, one that was retired since among them.
            ids: Mapping[str, int] = kept.get("fields", {})
            own = MemberField.id.in_([*ids.values()]), MemberField.user_id == task.user_id
            before = uow.session.scalars(select(MemberField).where(*own)) if ids else ()
            found = {field.id: field for field in before}
            for index, field_id in ids.items():
                if field_id in found and int(index) < len(layout.header):
                    layout.fields[int(index)] = found[field_id]
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

    def _find(
        self, uow: UnitOfWork, task: MemberImport, layout: ColumnLayout, sample: Sample, after: int
    ) -> dict[int, MemberField]:
        """Find the fields of the columns from this one; those that were, or would be, made."""
        columns = range(after, len(layout.header))
        living = fields.list_fields(uow, task.user_id)
        field_columns.match_fields(layout, columns, living)
        if not task.create_fields:
            for index, (key, _) in layout.mapped_fields.items():
                if index not in layout.fields:
                    raise errors.IMPORT_MAPPING_FIELD(key=key[:60])
            return {}
        others = [field for field in layout.fields.values() if field.id <= 0]
        keys = [field.key for field in (*living, *others)]
        new = field_columns.propose_fields(layout, columns, keys, sample)
        room = max(0, MAX_FIELDS - len(living) - len(others))
        if len(new) > room and not after:
            shown = [repr(field.label[:60]) for field in new.values()][:MAX_COLUMN_NAMES_SHOWN]
            raise errors.IMPORT_TOO_MANY_FIELDS(count=len(new), room=room, names=", ".join(shown))
        # There may be no room for the last of the columns that come late; the result names them.
        new = dict(islice(new.items(), room))
        if not task.dry_run:
            for index, each in new.items():
                named = {"key": each.key, "label": each.label}
                new[index] = fields.create_field(
                    uow, task.user_id, type=FieldType(each.type), **named
                )
        layout.fields.update(new)
        return new


def _described(layout: ColumnLayout, covered: int, creates: Mapping[int, str]) -> dict[str, Any]:
    """The plan as it is kept: what the owner is shown, and what reading the file again needs."""
    meanings, consent = layout.meanings(), layout.consent
    names = [name[:MAX_COLUMN_NAME_CHARACTERS] for name in layout.header]
    ignored = (name for index, name in enumerate(names) if index not in meanings)
    return {
        "columns": [
            {
                "name": name,
                "becomes": meanings.get(index, IGNORED),
                **({"consent": consent[index].subject.role} if index in consent else {}),
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
