"""Imports of random files, and the undo of the imports, have the results that a model predicts."""

import copy
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from sqlalchemy import select

from core.ids import random_hash_id, random_id
from devstack.harness.stack import Owner
from models import OptOut, Subscription, User
from services.subscriptions import fields, tags
from services.subscriptions.imports import chunks
from services.subscriptions.members import opt_out_checks
from tests.support.imports.importing import Importing, Rows, counts_of, csv_of
from tests.support.imports.oracle import HEADER, PASSED, STATUSES, Line, Member, Whole
from tests.support.lists.observed import expiry_of
from tests.support.lists.own_fields import create_company_and_age
from tests.support.sizes import FULL, sized

EXPIRIES = ["", PASSED, "2040-01-01T00:00:00.000000Z", "2041-06-01T00:00:00.000000Z"]
TAGS = ["a", "b", "Ça va"]
PEOPLE = 7
EXTRAS = {
    "company": st.sampled_from(["", "Acme", "B\\C\t\"'D", "Ωmega"]),
    "tags": st.frozensets(st.sampled_from(TAGS)),
    "joined": st.sampled_from(["", "2019-05-06", "2020-07-08"]),
}


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
        others = ["pending", "removed", "unsubscribed"]
        status = draw(st.sampled_from(["active", "active", "active", *others]))
        tier = draw(st.sampled_from(["free", "silver", "gold"]))
        expiry = draw(st.sampled_from(EXPIRIES)) if tier != "free" else ""
        member = Member(
            "unsubscribed" if "list" in noes and status == "active" else status,
            mail="email" not in noes and draw(st.booleans()),
            tier=tier,
            expiry=expiry or None,
            name=draw(st.sampled_from([None, "Ada", "Bea"])),
        )
    if member is not None and member.status == "active":
        line = draw(st.builds(Line, st.just(""), age=st.sampled_from(["", "1"]), **EXTRAS))
        member = replace(member, fields=line.fields, tags=line.tags, joined=line.joined)
    return Before(member, frozenset(noes), erased, draw(st.booleans()))


@st.composite
def lines(draw: st.DrawFn) -> tuple[int, bool, Line]:
    """Who, in capitals or not, and the rest of the row; nobody for no address."""
    tier = draw(st.sampled_from(["", "", "free", "silver", "gold"]))
    expiry = draw(st.sampled_from(EXPIRIES)) if tier != "free" else ""
    name = draw(st.sampled_from(["", "Ada", "Bea", "Zoë \\ Ω", "a;b\\t"]))
    status = draw(st.sampled_from(["subscribed"] * 12 + [*STATUSES]))
    who = draw(st.integers(-1, PEOPLE - 1))
    more = {**EXTRAS, "age": st.sampled_from(["", "1", "2", "old"])}
    line = st.builds(Line, *map(st.just, ("", name, tier, expiry, status)), **more)
    return who, draw(st.booleans()), draw(line)


@pytest.mark.tier("fast", "properties")
@pytest.mark.slow
@settings(
    max_examples=sized(24, 2000, few=5),
    database=None,
    phases=[Phase.generate, Phase.shrink] if FULL else [Phase.generate],
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(
    people=st.lists(befores(), min_size=PEOPLE, max_size=PEOPLE),
    file=st.lists(lines(), min_size=5, max_size=14),
    update=st.booleans(),
    missing=st.sampled_from([set(), {"tier"}, {"paid_expiry"}, {"tier", "paid_expiry"}]),
    chunk=st.integers(2, 6),
)
def test_import_of_any_random_file_matches_the_model_and_is_undone_completely(
    importing: Importing,
    *,
    people: list[Before],
    file: list[tuple[int, bool, Line]],
    update: bool,
    missing: set[str],
    chunk: int,
) -> None:
    owner = importing.stack.create_owner()
    list_id = importing.new_list(owner)
    tag = random_hash_id(8)
    whole = _prepare(importing, owner, list_id, people, tag)
    rows = [_addressed(each, tag) for each in file]
    columns = [name for name in HEADER if name not in missing]
    sent = csv_of([row.cells(columns) for row in rows], columns)
    options = {"on_existing": "update" if update else "skip"}
    before, noes_before = importing.records(list_id), importing.opt_outs(list_id)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(chunks, "ROWS_PER_CHUNK", chunk)
        tried = importing.bring(owner, list_id, sent, dry_run=True, **options)
        assert importing.records(list_id) == before
        assert importing.opt_outs(list_id) == noes_before
        known = "SELECT count(*) FROM users WHERE email LIKE %s"
        there = sum(not each.erased for each in people)
        assert importing.stack.query(known, f"%.{tag}@example.com") == [(there,)]
        done = importing.bring(owner, list_id, sent, **options)

    after = copy.deepcopy(whole)
    outcome = after.bring(rows, columns, update=update)
    for task in (tried, done):
        assert (counts_of(task), task.left_out) == (outcome.counts(), len(outcome.left_out))
        found = [(int(line), code) for *_, line, code, _ in importing.not_added(task.id)]
        # Sort the rows, because the opt-outs of a long file are in separate chunks.
        assert sorted(found) == outcome.not_added()
    _require(importing, owner, list_id, after)
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
    return replace(line, email=email.upper() if loud else email)


def _prepare(
    importing: Importing, owner: Owner, list_id: int, people: list[Before], tag: str
) -> Whole:
    whole, field_ids = Whole(), create_company_and_age(importing.resources, owner)
    with importing.resources.unit_of_work() as uow:
        tag_ids = tags.find_tag_ids(uow, list_id, TAGS, create=True)
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
                kept = {
                    "fields": {str(field_ids[key]): each for key, each in member.fields.items()},
                    "tag_ids": sorted(tag_ids[each] for each in member.tags),
                    "joined_at": _moment(member.joined),
                }
                uow.session.add(_subscription(list_id, user_id or 0, address, member, **kept))
    return whole


def _opt_outs(
    importing: Importing, list_id: int, user_id: int | None, address: str, before: Before
) -> list[OptOut]:
    keyring = importing.resources.keyring
    digest = opt_out_checks.compute_address_digests(keyring, address)[int(before.older_key)]
    same = {"list_id": list_id, "user_id": user_id, "address_hmac": digest, "source": "login"}
    return [OptOut(kind=kind, **same) for kind in sorted(before.noes)]


def _moment(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text).replace(tzinfo=UTC) if text else None


def _subscription(
    list_id: int, user_id: int, address: str, member: Member, **kept: Any
) -> Subscription:
    return Subscription(
        list_id=list_id,
        user_id=user_id,
        status=member.status,
        type=member.tier,
        paid_expiry=_moment(member.expiry),
        email_enabled=member.mail,
        name=member.name,
        email=address,
        source="subscribe",
        **kept,
    )


def _require(importing: Importing, owner: Owner, list_id: int, whole: Whole) -> None:
    with importing.resources.unit_of_work() as uow:
        of_list = select(Subscription).where(Subscription.list_id == list_id)
        found = uow.session.scalars(of_list).all()
        own = fields.read_own_fields(uow, owner.user_id)
        names = tags.find_tag_names(uow, [tag_id for each in found for tag_id in each.tag_ids])
    shown = {
        str(each.email): Member(
            each.status,
            mail=each.email_enabled,
            tier=each.type,
            expiry=expiry_of(each),
            name=each.name,
            fields=own.replace_ids(each.fields),
            tags=frozenset(names[tag_id] for tag_id in each.tag_ids),
            joined=f"{each.joined_at:%Y-%m-%d}" if each.joined_at else "",
        )
        for each in found
    }
    assert shown == whole.members
    assert importing.count(list_id) == sum(each.status == "active" for each in shown.values())
    assert {of for of, said in whole.noes.items() if "list" in said}.isdisjoint(
        importing.active(list_id)
    )


def _others(records: Rows, addresses: set[str]) -> Rows:
    return [row for row in records if addresses.isdisjoint(str(cell) for cell in row)]
