"""Decides which of the owner's fields each column of a file fills.

The column plan is stored with the import, so that no field is created twice when the file is read a
second time.
"""

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from sqlalchemy import select

from core.errors import imports as errors
from models import FieldType, MemberField, MemberImport
from services.subscriptions import fields
from services.subscriptions.fields import MAX_FIELDS
from services.subscriptions.imports.columns import field_columns
from services.subscriptions.imports.columns.column_layout import (
    IGNORED,
    MAX_COLUMN_NAMES_SHOWN,
    ColumnLayout,
)
from services.subscriptions.imports.columns.samples import ImportSamples, store_samples
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

# The maximum number of columns in an import's result. Columns beyond this number are read too, but
# not listed in the result.
MAX_COLUMNS_SHOWN = 500
MAX_COLUMN_NAME_CHARACTERS = 200
Sample = Sequence[Sequence[str]]


class ColumnPlan:
    def __init__(self, resources: Resources, task: MemberImport) -> None:
        self._resources = resources
        self._import_id = task.id
        self.keys: dict[str, str] = {}

    def store_header(self, header: Sequence[str], sample: Sample) -> None:
        """Store the header and some cells, from which the owner can choose the address column."""
        with self._resources.unit_of_work() as uow:
            task = uow.session.get_one(MemberImport, self._import_id)
            if task.columns is None:
                task.columns = _describe_plan(ColumnLayout(header), 0, {})
                samples = ImportSamples.collect(header, sample, (), {})
                store_samples(self._resources, task, samples)

    def find_fields(self, layout: ColumnLayout, sample: Sample) -> None:
        """Assign the owner's fields to columns, and create missing fields if allowed."""
        with self._resources.unit_of_work() as uow:
            query = select(MemberImport).where(MemberImport.id == self._import_id)
            task = uow.session.scalars(query.with_for_update(key_share=True)).one()
            plan: Mapping[str, Any] = task.columns or {}
            self._assign_known_fields(uow, task, layout, plan.get("fields", {}))
            covered = plan.get("covered", 0)
            # In a dry run, propose the new fields whenever the file is read, because a dry run
            # stores no fields.
            first = 0 if task.dry_run and sample else covered
            new_fields: dict[int, MemberField] = {}
            if first < len(layout.header):
                new_fields = self._match_or_create(uow, task, layout, sample, first)
            creates = {int(index): type_ for index, type_ in plan.get("creates", {}).items()}
            creates |= {index: field.type for index, field in new_fields.items()}
            self.keys = {str(field.id): field.key for field in layout.fields.values()}
            task.columns = _describe_plan(layout, max(covered, len(layout.header)), creates)

    def _assign_known_fields(
        self, uow: UnitOfWork, task: MemberImport, layout: ColumnLayout, ids: Mapping[str, int]
    ) -> None:
        """Assign the fields in the stored column plan, including retired fields."""
        if not ids:
            return
        are_known = MemberField.id.in_([*ids.values()]), MemberField.user_id == task.user_id
        known = uow.session.scalars(select(MemberField).where(*are_known))
        fields_by_id = {field.id: field for field in known}
        for index, field_id in ids.items():
            if field_id in fields_by_id and int(index) < len(layout.header):
                layout.fields[int(index)] = fields_by_id[field_id]

    def _match_or_create(
        self, uow: UnitOfWork, task: MemberImport, layout: ColumnLayout, sample: Sample, first: int
    ) -> dict[int, MemberField]:
        columns = range(first, len(layout.header))
        existing = fields.list_fields(uow, task.user_id)
        field_columns.match_fields(layout, columns, existing)
        if not task.create_fields:
            for index, (key, _) in layout.mapped_fields.items():
                if index not in layout.fields:
                    raise errors.IMPORT_MAPPING_FIELD(key=key[:60])
            return {}
        proposed_fields = [field for field in layout.fields.values() if field.id <= 0]
        keys = [field.key for field in (*existing, *proposed_fields)]
        new = field_columns.propose_fields(layout, columns, keys, sample)
        room = max(0, MAX_FIELDS - len(existing) - len(proposed_fields))
        if len(new) > room and not first:
            labels = [repr(field.label[:60]) for field in new.values()][:MAX_COLUMN_NAMES_SHOWN]
            raise errors.IMPORT_TOO_MANY_FIELDS(count=len(new), room=room, names=", ".join(labels))
        # Objects in a JSON Lines file may add more columns than an owner may have fields. Columns
        # without a field are reported as ignored.
        new = dict(islice(new.items(), room))
        if not task.dry_run:
            for index, field in new.items():
                names = {"key": field.key, "label": field.label}
                new[index] = fields.create_field(
                    uow, task.user_id, type=FieldType(field.type), **names
                )
        layout.fields.update(new)
        return new


def _describe_plan(
    layout: ColumnLayout, covered: int, creates: Mapping[int, str]
) -> dict[str, Any]:
    meanings = layout.describe_roles()
    consent = layout.consent
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
