"""`pressroom credits`: what an operator gives, takes and proves."""

import json
from collections.abc import Callable, Iterator

import pytest

from services.credits import ledger, verify
from tests.commands import fails_with, pressroom, printed
from tests.stack import Owner, Stack

GRANT = (
    "SELECT credit_append(%s, 'grant', 1, 1, 'operator', 'x', NULL, NULL, NULL, NULL) IS NOT NULL"
)


@pytest.fixture(scope="module")
def books(make_stack: Callable[[str], Stack]) -> Stack:
    """A database whose ledger may be falsified."""
    return make_stack("books")


@pytest.fixture
def account(books: Stack) -> Iterator[Owner]:
    """A user without entries; whatever a test writes is gone after it."""
    yield books.new_owner()
    falsify(books, "TRUNCATE open_charges, credit_entries, credit_accounts, credit_checkpoints")


@pytest.fixture
def holder(books: Stack, account: Owner) -> int:
    """A user with five entries."""
    for _ in range(5):
        books.query(GRANT, account.user_id)
    return account.user_id


def falsify(books: Stack, *statements: str) -> None:
    """What only somebody with the database's own rights can do: past every trigger."""
    books.query("SET session_replication_role = replica;" + ";".join(statements))


def faults(books: Stack) -> list[tuple[int | None, str]]:
    return [(each.seq, each.fault) for each in verify.verify(books.resources, full=True).faults]


def test_credits_are_granted_adjusted_and_proven(books: Stack, account: Owner) -> None:
    granted = printed(books, "credits", "grant", account.email, "12.5", "--reason", "welcome")
    expected = {
        "user_id": account.user_id,
        "seq": 1,
        "action": "grant",
        "amount_credit": 12.5,
        "delta_credit": 12.5,
        "balance_after": 12.5,
        "source_type": "operator",
        "source_id": "welcome",
    }
    assert {name: granted[name] for name in expected} == expected
    less = printed(books, "credits", "adjust", account.email, "-2.0001")
    assert (less["action"], less["source_id"], less["seq"]) == ("adjust", "adjust", 2)
    assert (less["amount_credit"], less["delta_credit"]) == (2.0001, -2.0001)
    more = printed(books, "credits", "adjust", account.email, "0.0001", "--reason", "again")
    assert (more["delta_credit"], more["balance_after"]) == (0.0001, 10.5)
    assert printed(books, "credits", "verify") == []
    shown = pressroom(books, "credits", "verify")
    assert shown.returncode == 0
    read, verdict = shown.stdout.splitlines()
    assert read.startswith("Read: 0 entries of ")
    assert verdict == "All balances, debts, hashes and orders hold."
    assert "; all orders." in pressroom(books, "credits", "verify", "--full").stdout
    kept = "SELECT id FROM credit_entries WHERE user_id = %s ORDER BY seq DESC"
    ids = [each["id"] for each in (more, less, granted)]
    assert books.query(kept, account.user_id) == [(each,) for each in ids]


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("user.not_found", ["grant", "nobody@example.com", "1"]),
        ("credits.amount", ["grant", "", "much"]),
        ("credits.amount", ["adjust", "", "-1.00001"]),
        ("credits.insufficient", ["adjust", "", "-0.0001"]),
        ("credits.source_id", ["grant", "", "1", "--reason", " "]),
    ],
)
def test_errors_end_with_1_and_change_nothing(
    stack: Stack, owner: Owner, code: str, words: list[str]
) -> None:
    fails_with(stack, code, "credits", *(word or owner.email for word in words))
    assert stack.query("SELECT 1 FROM credit_entries WHERE user_id = %s", owner.user_id) == []


def test_verify_ends_with_1_and_names_the_account_and_place(books: Stack, holder: int) -> None:
    assert printed(books, "credits", "verify") == []
    falsify(books, "UPDATE credit_entries SET source_id = 'y' WHERE seq = 3")
    done = pressroom(books, "credits", "verify", "--full", "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout) == [
        {
            "user_id": holder,
            "seq": 3,
            "fault": "the hash does not fit what it says",
            "order_id": None,
        }
    ]


@pytest.mark.parametrize(
    "change",
    [
        "action = 'adjust'",
        "amount = 2, delta = 2",
        "source_type = 'consume'",
        "source_id = 'y'",
        "order_id = 7",
        "currency = 'USD'",
        "rate_usd_to_credit = 100",
        "meta = '{}'",
        "created_at = created_at + interval '1 microsecond'",
        "hash = sha256('forged')",
        "user_id = user_id + 1",
    ],
)
def test_verify_finds_a_changed_entry(books: Stack, holder: int, change: str) -> None:
    falsify(books, f"UPDATE credit_entries SET {change} WHERE user_id = {holder} AND seq = 3")
    assert {place for place, _ in faults(books)} & {3, 4, None}


@pytest.mark.parametrize("seq", [1, 3, 5])
def test_verify_finds_a_deleted_entry(books: Stack, holder: int, seq: int) -> None:
    falsify(books, f"DELETE FROM credit_entries WHERE seq = {seq}")
    found = faults(books)
    if seq < 5:
        assert (seq + 1, "an entry is missing before this one") in found
    assert (None, "entries are missing at the end") in found
    assert (None, "the balance is not the sum of the entries") in found


def test_verify_finds_a_swapped_pair(books: Stack, holder: int) -> None:
    falsify(
        books,
        "UPDATE credit_entries SET seq = seq + 100 WHERE seq IN (2, 3)",
        "UPDATE credit_entries SET seq = 5 - (seq - 100) WHERE seq > 100",
    )
    assert {seq for seq, _ in faults(books)} == {2, 3, 4}


def test_verify_finds_a_forged_chain_that_the_account_does_not_end_in(
    books: Stack, holder: int
) -> None:
    last_but_one = "(SELECT hash FROM credit_entries WHERE seq = 4)"
    falsify(
        books,
        "UPDATE credit_entries SET source_id = 'y' WHERE seq = 5",
        f"UPDATE credit_entries e SET hash = credit_entry_hash({last_but_one}, e) WHERE seq = 5",
    )
    assert faults(books) == [(None, "the account does not end in the last hash")]


def test_verify_finds_a_balance_without_entries_and_entries_without_account(
    books: Stack, holder: int
) -> None:
    other = books.new_owner().user_id
    ledger.balance(books.resources.database, other)
    assert faults(books) == []
    falsify(books, f"UPDATE credit_accounts SET balance = 1 WHERE user_id = {other}")
    assert (None, "the balance is not the sum of the entries") in faults(books)
    falsify(books, "DELETE FROM credit_accounts")
    assert faults(books) == [(None, "there are entries and no account")]
