"""Suppressed addresses of a sending product come along as opt-outs: imports of another kind."""

import json

import httpx2

from tests.contract.bulk import add, addresses, counts, errors, imported, sheet
from tests.contract.replies import data
from tests.contract.subscribers import Reader, known_member, member
from tests.stack import Stack


def opt_outs(stack: Stack, list_id: int) -> dict[str, str]:
    """By address, how each opt-out of the list came."""
    rows = stack.query(
        "SELECT email, source FROM opt_outs JOIN users ON users.id = opt_outs.user_id"
        " WHERE list_id = %s AND kind = 'list'",
        list_id,
    )
    return {str(email): str(source) for email, source in rows}


def postmark(**reasons: str) -> bytes:
    return json.dumps(
        {"Suppressions": [{"EmailAddress": a, "SuppressionReason": r} for a, r in reasons.items()]}
    ).encode()


def test_each_row_becomes_an_opt_out_that_keeps_how_it_came(
    stack: Stack, client: httpx2.Client, reader: Reader, list_id: int
) -> None:
    reader.joins(list_id)
    [complained, left] = addresses(2)
    file = postmark(
        **{reader.email: "HardBounce", complained: "SpamComplaint", left: "ManualSuppression"}
    )
    expected = {"received": 3, "opted_out": 3}
    assert counts(imported(client, list_id, file, kind="suppressions", dry_run="1")) == expected
    assert opt_outs(stack, list_id) == {}
    result = imported(client, list_id, file, kind="suppressions")
    assert counts(result) == expected
    found = {reader.email: "bounce", complained: "complaint", left: "import"}
    assert opt_outs(stack, list_id) == found
    assert reader.stands(list_id)[0] == "unsubscribed"
    assert member(client, list_id, complained) is None
    assert data(client.get(f"/imports/{result['import_id']}"))["kind"] == "suppressions"
    # As often as it is sent, and as what an import says of members.
    assert counts(imported(client, list_id, file, kind="bounces")) == expected
    assert opt_outs(stack, list_id) == found
    assert data(add(client, list_id, reader.email, complained, left)) == 0


def test_a_reason_that_may_pass_suppresses_nothing(
    stack: Stack, client: httpx2.Client, list_id: int
) -> None:
    [hard, soft] = addresses(2)
    assert data(add(client, list_id, hard, soft)) == 2
    file = sheet(["status", "reason", "email"], ["5.1.1", "gone", hard], ["4.2.2", "full", soft])
    result = imported(client, list_id, file, kind="bounces")
    assert counts(result) == {"received": 2, "opted_out": 1, "invalid": 1}
    assert opt_outs(stack, list_id) == {hard: "bounce"}
    assert known_member(client, list_id, soft)["status"] == "active"
    told = {each["email"]: each["code"] for each in errors(result["errors_url"])}
    assert told == {hard: "member.left", soft: "row.may_pass"}


def test_an_undo_takes_no_opt_out_back(
    stack: Stack, client: httpx2.Client, reader: Reader, list_id: int
) -> None:
    reader.joins(list_id)
    file = sheet(["email"], [reader.email])
    import_id = imported(client, list_id, file, kind="complaints")["import_id"]
    assert data(client.delete(f"/imports/{import_id}/members")) == 0
    assert opt_outs(stack, list_id) == {reader.email: "complaint"}
    assert reader.stands(list_id)[0] == "unsubscribed"
    # The person themselves may.
    reader.joins(list_id)
    assert opt_outs(stack, list_id) == {}


def test_a_file_of_members_tells_how_too(stack: Stack, client: httpx2.Client, list_id: int) -> None:
    [bounced, left] = addresses(2)
    file = sheet(["email", "status"], [bounced, "cleaned"], [left, "unsubscribed"])
    assert counts(imported(client, list_id, file)) == {"received": 2, "opted_out": 2}
    assert opt_outs(stack, list_id) == {bounced: "bounce", left: "import"}
