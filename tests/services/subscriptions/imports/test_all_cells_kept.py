"""Tests that an import loses no cell of a newsletter product's export file.

The people in the files do not exist.
"""

import csv
import io
from typing import Any

import pytest

from core.ids import random_hash_id
from devstack.harness.stack import Owner
from services.subscriptions import fields
from services.subscriptions.imports.columns.row_extras import split_tags
from tests.support.imports.importing import ImportRunner
from tests.support.imports.product_files import PRODUCT_FILES

# Pressroom interprets the cells of columns with these meanings, for example as a status. Pressroom
# doesn't have to store the text of such a cell.
INTERPRETED_MEANINGS = {
    *("name", "first_name", "last_name", "tier", "paid_expiry", "tier, status"),
    *("status", "subscribed", "unsubscribed"),
}


@pytest.mark.parametrize(
    ("file", "product"),
    [(file, product) for product, file in PRODUCT_FILES.items()],
    ids=PRODUCT_FILES,
)
def test_every_cell_of_a_newsletter_product_export_is_kept_or_interpreted(
    importing: ImportRunner, importer: Owner, list_id: int, file: str, product: str
) -> None:
    text = file.format(d=f"{random_hash_id(8)}.example.com")
    task = importing.import_members(importer, list_id, text.encode(), create_fields=True)

    assert (task.added, task.left_out) == (2, 0)
    assert task.columns is not None
    assert task.columns["ignored_columns"] == []
    assert task.description is not None
    assert task.description["product"] == product
    meaning_by_column = {each["name"]: each["becomes"] for each in task.columns["columns"]}
    email_column = next(
        column for column, meaning in meaning_by_column.items() if meaning == "email"
    )
    for record in csv.DictReader(io.StringIO(text)):
        member = read_stored_member(importing, importer, list_id, record[email_column])
        for column, cell in record.items():
            assert is_kept(member, meaning_by_column[column], cell), (column, cell, member)


def is_kept(member: dict[str, Any], meaning: str, cell: str) -> bool:
    if not cell or meaning in INTERPRETED_MEANINGS:
        return True
    kind, _, name = meaning.partition(".")
    if kind == "consent":
        # If the consent in the file is old, Pressroom stores only the network of the IP address.
        expected_start = cell.rpartition(".")[0] if name.endswith("ip") else cell[:10]
        return any(expected_start in part for claim in member["claims"] for part in claim)
    expected: dict[str, Any] = {
        "email": member["email"] == cell,
        "fields": member["fields"].get(name) == cell,
        "tags": set(split_tags(cell)) == member["tags"],
        "joined_at": member["joined_at"][:10] == cell[:10],
        # Pressroom stores only the host of a website's URL.
        "origin": member["origin"].get(name, "-") in cell.lower(),
    }
    return bool(expected[kind])


def read_stored_member(
    importing: ImportRunner, owner: Owner, list_id: int, email: str
) -> dict[str, Any]:
    [(subscription_id, values, tag_names, joined_at, origin)] = importing.stack.query(
        "SELECT s.id, s.fields, ARRAY(SELECT name FROM tags WHERE id = ANY(s.tag_ids)),"
        " to_char(s.joined_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS'), s.origin"
        " FROM subscriptions AS s WHERE list_id = %s AND email = %s",
        *(list_id, email),
    )
    claims = importing.stack.query(
        "SELECT to_char(occurred_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS'),"
        " coalesce(ip, ''), coalesce(url, '') FROM consent_claims WHERE subscription_id = %s",
        subscription_id,
    )
    with importing.resources.unit_of_work() as uow:
        owner_fields = fields.read_own_fields(uow, owner.account_id)
    field_values = owner_fields.replace_ids(values)  # type: ignore[arg-type]
    return {
        "email": email,
        "fields": {key: fields.format_value(value) for key, value in field_values.items()},
        "tags": set(tag_names),  # type: ignore[call-overload]
        "joined_at": joined_at or "",
        "claims": claims,
        "origin": origin or {},
    }
