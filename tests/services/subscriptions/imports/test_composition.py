"""Imports treat texts in composed and in decomposed form (Unicode NFC and NFD) as equal."""

from typing import Literal
from unicodedata import normalize

import pytest
from sqlalchemy import select

from devstack.harness.stack import Owner
from models import FieldType, Subscription
from services.subscriptions import fields, lists
from services.subscriptions.filters import member_filter
from tests.support.imports.importing import ImportRunner, csv_of

HEADER = ("email", "name", "City", "Size", "Tags")
VALUES = ("Zoë Müller", "Genève", "très grand", "é")


Forms = tuple[Literal["NFC", "NFD"], Literal["NFC", "NFD"]]


@pytest.mark.parametrize("forms", [("NFC", "NFD"), ("NFD", "NFC")])
def test_import_and_filter_treat_composed_and_decomposed_unicode_as_equal(
    importing: ImportRunner, importer: Owner, list_id: int, people: list[str], forms: Forms
) -> None:
    stored_form, imported_form = forms
    stored_name, _, stored_size, _ = (normalize(stored_form, value) for value in VALUES)
    choices = [stored_size]
    with importing.resources.unit_of_work() as uow:
        fields.create_field(uow, importer.account_id, type=FieldType.TEXT, key="city", label="City")
        size_field = {"key": "size", "label": "Size", "choices": choices}
        fields.create_field(uow, importer.account_id, type=FieldType.CHOICE, **size_field)

    def import_person(form: Literal["NFC", "NFD"]) -> int:
        row = [people[0], *(normalize(form, each) for each in VALUES)]
        task = importing.import_members(
            importer, list_id, csv_of([row], HEADER), on_existing="update"
        )
        assert task.left_out == 0
        return task.updated

    import_person(stored_form)
    # Earlier releases stored names without normalising them.
    rename_statement = "UPDATE subscriptions SET name = %s WHERE list_id = %s RETURNING 1"
    importing.stack.query(rename_statement, stored_name, list_id)

    assert import_person(imported_form) == 0
    for form in forms:
        name, city, *_ = (normalize(form, each) for each in VALUES)
        by_name = {"field": "name", "is": name}
        by_city = {"field": "fields.city", "is": city}
        name_begins = {"field": "name", "begins": name[:-4]}
        with importing.resources.unit_of_work() as uow:
            parsed_filter = member_filter.read_filter(
                uow, lists.get_list(uow, list_id), {"all": [by_name, by_city, name_begins]}
            )
            query = select(Subscription.email).where(
                Subscription.list_id == list_id, parsed_filter.build_condition()
            )
            assert list(uow.session.scalars(query)) == people[:1]
