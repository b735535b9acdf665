"""Imports that update existing members change only values for which the file has a column."""

import json
from typing import Any

import pytest

from devstack.harness.stack import Owner
from services.subscriptions import bulk_files
from services.subscriptions.imports import judged_rows
from services.subscriptions.imports.chunks.stored_chunks import get_chunk_key
from services.subscriptions.imports.columns.samples import add_samples
from services.subscriptions.imports.judged_rows import JudgedRow
from storage.encryption import seal
from tests.support.imports.importing import ImportRunner, csv_of, new_addresses

Paid = tuple[str, int | None]
FREE: Paid = ("free", None)
GOLD: Paid = ("gold", 2040)
SILVER: Paid = ("silver", 2040)
LAPSED: Paid = ("gold", 2020)
ENDLESS: Paid = ("gold", None)
TIER_COLUMN = "tier"
EXPIRY_COLUMN = "paid until"


@pytest.fixture
def import_paid_members(importing: ImportRunner, importer: Owner, list_id: int) -> Any:
    """A function that imports members, each with a paid tier and the year in which the tier ends.

    The function returns the e-mail addresses of the members.
    """

    def import_members(*people: Paid) -> list[str]:
        addresses = new_addresses(len(people))
        rows = [
            (address, tier, f"{year}-01-01" if year else "")
            for address, (tier, year) in zip(addresses, people, strict=True)
        ]
        importing.import_members(
            importer, list_id, csv_of(rows, ("email", TIER_COLUMN, EXPIRY_COLUMN))
        )
        return addresses

    return import_members


def read_paid_tiers(importing: ImportRunner, list_id: int, addresses: list[str]) -> list[Paid]:
    """Return the paid tier of each member, and the year in which the tier ends."""
    rows = importing.stack.query(
        "SELECT email, type, extract(year FROM paid_expiry)::int FROM subscriptions"
        " WHERE list_id = %s",
        list_id,
    )
    tiers_by_address: dict[str, Any] = {str(email): (tier, year) for email, tier, year in rows}
    return [tiers_by_address[address] for address in addresses]


@pytest.mark.parametrize(
    ("columns", "rows"),
    [
        (
            (TIER_COLUMN,),
            [
                (GOLD, ("gold",), GOLD),
                (SILVER, ("gold",), GOLD),
                (LAPSED, ("gold",), ENDLESS),
                (LAPSED, ("",), LAPSED),
                (ENDLESS, ("silver",), ("silver", None)),
                (GOLD, ("free",), FREE),
                (FREE, ("gold",), ENDLESS),
                (GOLD, ("",), GOLD),
            ],
        ),
        (
            (EXPIRY_COLUMN,),
            [
                (GOLD, ("2041-01-01",), ("gold", 2041)),
                (LAPSED, ("2041-01-01",), ("gold", 2041)),
                (GOLD, ("",), ENDLESS),
                (FREE, ("2041-01-01",), FREE),
                (FREE, ("",), FREE),
            ],
        ),
        (
            (TIER_COLUMN, EXPIRY_COLUMN),
            [
                (GOLD, ("gold", ""), ENDLESS),
                (GOLD, ("silver", ""), ("silver", None)),
                (GOLD, ("", ""), GOLD),
                (GOLD, ("", "2041-01-01"), ("gold", 2041)),
                (GOLD, ("free", "2041-01-01"), FREE),
                # The row is too short and has no cell for the expiry date.
                (GOLD, ("gold",), GOLD),
            ],
        ),
        # Ghost's export has a column for the tier, but not for the expiry date.
        (
            ("complimentary_plan", "stripe_customer_id", "subscribed_to_emails"),
            [(SILVER, ("true", "", "true"), SILVER), (GOLD, ("false", "", "true"), GOLD)],
        ),
    ],
    ids=["tier", "end", "tier and end", "complimentary_plan"],
)
def test_import_update_changes_only_values_for_which_the_file_has_a_column(
    importing: ImportRunner,
    importer: Owner,
    list_id: int,
    *,
    import_paid_members: Any,
    columns: tuple[str, ...],
    rows: list[tuple[Paid, tuple[str, ...], Paid]],
) -> None:
    before = [old for old, _, _ in rows]
    after = [new for _, _, new in rows]
    addresses = import_paid_members(*before)
    file = csv_of(
        [(address, *cells) for address, (_, cells, _) in zip(addresses, rows, strict=True)],
        ("email", *columns),
    )
    importing.import_members(importer, list_id, file)
    assert read_paid_tiers(importing, list_id, addresses) == before
    task = importing.import_members(importer, list_id, file, on_existing="update")
    assert read_paid_tiers(importing, list_id, addresses) == after
    assert task.updated == sum(old != new for old, new in zip(before, after, strict=True))
    importing.undo(importer, task.id)
    assert read_paid_tiers(importing, list_id, addresses) == before


def test_paid_expiry_without_a_paid_tier_is_reported_and_not_imported(
    importing: ImportRunner, importer: Owner, list_id: int, import_paid_members: Any
) -> None:
    free, gold = import_paid_members(FREE, GOLD)
    [new_address] = new_addresses(1)
    file = csv_of(
        [(each, "2041-01-01") for each in (free, gold, new_address)], ("email", EXPIRY_COLUMN)
    )
    job = importing.work(importing.begin(importer, list_id, file, on_existing="update"))
    assert job.result is not None
    result = add_samples(importing.resources, job.result)
    examples = [{"line": line, "cell": "2041-01-01T00:00:00.000000Z"} for line in (2, 4)]
    assert result["problems"] == [
        {"column": EXPIRY_COLUMN, "rule": "requires a paid tier", "rows": 2, "examples": examples}
    ]
    assert (result["left_out"], result["updated"], result["added"]) == (2, 1, 1)
    codes = {cells[0]: cells[-2] for cells in importing.not_added(result["import_id"])}
    assert codes == {free: "member.already", gold: "member.already", new_address: "row.left_out"}


def test_key_missing_from_a_json_object_leaves_the_stored_value_unchanged(
    importing: ImportRunner, importer: Owner, list_id: int, import_paid_members: Any
) -> None:
    addresses = import_paid_members(GOLD, GOLD, GOLD)
    ends: list[dict[str, Any]] = [{EXPIRY_COLUMN: "2041-01-01"}, {}, {EXPIRY_COLUMN: None}]
    lines = (
        json.dumps({"email": address, TIER_COLUMN: "gold", **end})
        for address, end in zip(addresses, ends, strict=True)
    )
    importing.import_members(importer, list_id, "\n".join(lines).encode(), on_existing="update")
    assert read_paid_tiers(importing, list_id, addresses) == [("gold", 2041), GOLD, ENDLESS]


def test_import_chunk_stored_by_release_1_0_0_keeps_the_stored_paid_expiry(
    importing: ImportRunner, importer: Owner, list_id: int, import_paid_members: Any
) -> None:
    [address] = import_paid_members(GOLD)
    job_id = importing.begin(
        importer, list_id, csv_of([[address]], ["email"]), on_existing="update"
    )
    task = importing.of_job(job_id)
    name = get_chunk_key(task.object_prefix, 0)
    key = bulk_files.unwrap_key(importing.resources, task)
    row = JudgedRow(2, address, tier="gold", cells=[address, "gold"])
    content = seal(judged_rows.encode_rows([row]), key, name)
    importing.resources.objects.put(name, content, "application/octet-stream")
    importing.stack.query(
        "UPDATE imports SET chunks = 1, received = 1, is_split = true WHERE id = %s RETURNING id",
        task.id,
    )
    assert importing.work(job_id).status == "succeeded"
    assert read_paid_tiers(importing, list_id, [address]) == [GOLD]
