import copy
from dataclasses import dataclass
from datetime import datetime

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from core.clock import iso
from core.ids import random_hash_id, random_id
from models import OptOut, Subscription, User
from services.subscriptions.imports import split
from services.subscriptions.members import opt_outs
from tests.importing import Importing, Rows, counts_of, csv_of
from tests.services.subscriptions.imports.whole import HEADER, Line, Member, Whole
from tests.sizes import FULL, sized

EXPIRIES = ["", "2040-01-01T00:00:00.000000Z", "2041-06-01T00:00:00.000000Z"]
PEOPLE = 7


@dataclass(frozen=True)
class Before:
    """How somebody stands with the list before the import."""

    member: Member | None
    noes: frozenset[str]
    # Erased since they said no: known by the address alone.
    erased: bool
    older_key: bool


@st.composite
def befores(draw: st.DrawFn) -> Before:
    noes = draw(st.sets(st.sampled_from(["list", "email"]), max_size=2))
    erased = bool(noes) and draw(st.booleans())
    member = None
    if not erased and draw(st.integers(0, 3)):
        status = draw(st.sampled_from(["active", "pending", "removed", "unsubscribed"]))
        tier = draw(st.sampled_from(["free", "silver", "gold"]))
        expiry = draw(st.sampled_from(EXPIRIES)) if tier != "free" else ""
        member = Member(
            "unsubscribed" if "list" in noes and status == "active" else status,
            mail="email" not in noes and draw(st.booleans()),
            tier=tier,
            expiry=expiry or None,
            name=draw(st.sampled_from([None, "Ada", "Bea"])),
        )
    return Before(member, frozenset(noes), erased, draw(st.booleans()))


@st.composite
def lines(draw: st.DrawFn) -> tuple[int, bool, Line]:
    """Who, in capitals or not, and the rest of the row; nobody for no address."""
    tier = draw(st.sampled_from(["", "", "free", "silver", "gold"]))
    expiry = draw(st.sampled_from(EXPIRIES)) if tier not in {"", "free"} else ""
    name = draw(st.sampled_from(["", "Ada", "Bea", "Zoë \\ Ω", "a;b\\t"]))
    left = draw(st.integers(0, 9)) == 0
    who = draw(st.integers(-1, PEOPLE - 1))
    return who, draw(st.booleans()), Line("", name, tier, expiry, left)


@pytest.mark.both("properties")
@pytest.mark.slow
@settings(
    max_examples=sized(16, 2000, few=3),
    database=None,
    phases=[Phase.generate, Phase.shrink] if FULL else [Phase.generate],
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(
    people=st.lists(befores(), min_size=PEOPLE, max_size=PEOPLE),
    file=st.lists(lines(), min_size=1, max_size=14),
    update=st.booleans(),
    chunk=st.integers(2, 6),
)
def test_any_file_on_any_list_does_what_the_rules_say_and_is_taken_back(
    importing: Importing,
    people: list[Before],
    file: list[tuple[int, bool, Line]],
    update: bool,
    chunk: int,
) -> None:
    owner = importing.stack.new_owner()
    list_id = importing.new_list(owner)
    tag = random_hash_id(8)
    whole = _prepare(importing, list_id, people, tag)
    rows = [_addressed(each, tag) for each in file]
    sent = csv_of([row.cells() for row in rows], HEADER)
    options = {"on_existing": "update" if update else "skip"}
    before, noes_before = importing.records(list_id), importing.opt_outs(list_id)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(split, "ROWS_PER_CHUNK", chunk)
        tried = importing.bring(owner, list_id, sent, dry_run=True, **options)
        assert importing.records(list_id) == before
        assert importing.opt_outs(list_id) == noes_before
        assert _known_people(importing, tag) == sum(not each.erased for each in people)
        done = importing.bring(owner, list_id, sent, **options)

    after = copy.deepcopy(whole)
    outcome = after.bring(rows, update=update)
    for task in (tried, done):
        assert counts_of(task) == outcome.counts()
        found = [(int(line), code) for *_, line, code, _ in importing.not_added(task.id)]
        assert found == outcome.not_added()
    _require(importing, list_id, after, tag)
    added = outcome.counts()["added"]
    undone = {"import_id": done.id, "undone": added, "kept": 0}
    assert importing.take_back(owner, done.id) == undone
    left = {
        row.email.lower()
        for row, said in zip(rows, outcome.verdicts, strict=True)
        if said == "left"
    }
    assert _others(importing.records(list_id), left) == _others(before, left)
    if not left:
        assert importing.records(list_id) == before
        assert importing.opt_outs(list_id) == noes_before
    assert importing.count(list_id) == len(importing.active(list_id))


def _address(who: int, tag: str) -> str:
    return f"p{who}.{tag}@example.com"


def _addressed(row: tuple[int, bool, Line], tag: str) -> Line:
    who, loud, line = row
    email = _address(who, tag) if who >= 0 else "nobody"
    return Line(email.upper() if loud else email, line.name, line.tier, line.expiry, line.left)


def _prepare(importing: Importing, list_id: int, people: list[Before], tag: str) -> Whole:
    whole = Whole()
    with importing.resources.unit_of_work() as uow:
        for who, each in enumerate(people):
            address, user_id = _address(who, tag), None
            if not each.erased:
                user_id = random_id()
                uow.session.add(User(id=user_id, email=address))
                uow.session.flush()
            whole.noes[address] = set(each.noes)
            uow.session.add_all(_opt_outs(importing, list_id, user_id, address, each))
            if (member := each.member) is not None:
                whole.members[address] = member
                uow.session.add(_subscription(list_id, user_id or 0, address, member))
    return whole


def _opt_outs(
    importing: Importing, list_id: int, user_id: int | None, address: str, before: Before
) -> list[OptOut]:
    keyring = importing.resources.keyring
    digest = opt_outs.address_digests(keyring, address)[int(before.older_key)]
    same = {"list_id": list_id, "user_id": user_id, "address_hmac": digest, "source": "login"}
    return [OptOut(kind=kind, **same) for kind in sorted(before.noes)]


def _subscription(list_id: int, user_id: int, address: str, member: Member) -> Subscription:
    return Subscription(
        list_id=list_id,
        user_id=user_id,
        status=member.status,
        type=member.tier,
        paid_expiry=datetime.fromisoformat(member.expiry) if member.expiry else None,
        email_enabled=member.mail,
        name=member.name,
        email=address,
        source="subscribe",
    )


def _known_people(importing: Importing, tag: str) -> int:
    [(found,)] = importing.stack.query(
        "SELECT count(*) FROM users WHERE email LIKE %s", f"%.{tag}@example.com"
    )
    return int(str(found))


def _require(importing: Importing, list_id: int, whole: Whole, tag: str) -> None:
    found = importing.stack.query(
        "SELECT email, status, email_enabled, type, paid_expiry, name FROM subscriptions"
        " WHERE list_id = %s",
        list_id,
    )
    shown = {
        str(email): Member(str(status), bool(mail), str(tier), expiry and iso(expiry), name)  # type: ignore[arg-type]
        for email, status, mail, tier, expiry, name in found
    }
    assert shown == whole.members
    assert importing.count(list_id) == sum(each.status == "active" for each in shown.values())
    assert {of for of, said in whole.noes.items() if "list" in said}.isdisjoint(
        importing.active(list_id)
    )


def _others(records: Rows, addresses: set[str]) -> Rows:
    return [row for row in records if addresses.isdisjoint(str(cell) for cell in row)]
