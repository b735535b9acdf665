"""Tests that imports of random files, and their undo, have the results that a model predicts."""

import copy
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
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
from services.subscriptions.imports.chunks import chunks
from services.subscriptions.members import opt_out_checks
from tests.support.imports.importing import ImportRunner, Rows, counts_of, csv_of
from tests.support.lists.observed import expiry_of
from tests.support.lists.own_fields import create_company_and_age
from tests.support.sizes import FULL, sized

ADDED, ALREADY, OPTED_OUT = "added", "already", "opted_out"
INVALID, DUPLICATE, LEFT, DENIED = "invalid", "duplicate", "left", "denied"
NOT_SUBSCRIBED = "not_subscribed"
HEADER = ("email", "name", "tier", "paid_expiry", "status", "Company", "Age", "tags", "created_at")
PAST_EXPIRY = "2020-01-01T00:00:00.000000Z"
# The statuses of rows, from the least strict to the strictest.
STATUSES = ("subscribed", "unconfirmed", "unsubscribed", "cleaned", "bounced", "complained")
CODES = {
    ALREADY: "member.already",
    OPTED_OUT: "member.opted_out",
    LEFT: "member.left",
    INVALID: "email.invalid",
    DUPLICATE: "row.duplicate",
    NOT_SUBSCRIBED: "row.not_subscribed",
}
_COUNTED_AS = {LEFT: OPTED_OUT, NOT_SUBSCRIBED: INVALID}

EXPIRIES = ["", PAST_EXPIRY, "2040-01-01T00:00:00.000000Z", "2041-06-01T00:00:00.000000Z"]
TAGS = ["a", "b", "Ça va"]
PERSON_COUNT = 7
EXTRA_CELLS = {
    "company": st.sampled_from(["", "Acme", "B\\C\t\"'D", "Ωmega"]),
    "tags": st.frozensets(st.sampled_from(TAGS)),
    "joined": st.sampled_from(["", "2019-05-06", "2020-07-08"]),
}


@dataclass(frozen=True)
class Member:
    status: str
    mail: bool = True
    tier: str = "free"
    expiry: str | None = None
    name: str | None = None
    fields: Mapping[str, object] = field(default_factory=dict)
    tags: frozenset[str] = frozenset()
    joined: str = ""


@dataclass(frozen=True)
class Line:
    """A row of a file of members.

    If ``email`` contains no ``@``, the import rejects the row. If ``age`` isn't a number, the
    import adds the member without an age.
    """

    email: str
    name: str = ""
    tier: str = ""
    expiry: str = ""
    status: str = "subscribed"
    company: str = ""
    age: str = ""
    tags: frozenset[str] = frozenset()
    joined: str = ""

    def cells(self, columns: Collection[str] = HEADER) -> list[str]:
        """Return the row's cells in the given columns."""
        known = [self.email, self.name, self.tier, self.expiry, self.status]
        cells = [*known, self.company, self.age, ",".join(sorted(self.tags)), self.joined]
        return [cell for name, cell in zip(HEADER, cells, strict=True) if name in columns]

    @property
    def address(self) -> str:
        return self.email.lower()

    @property
    def strictness(self) -> int:
        return STATUSES.index(self.status)

    @property
    def fields(self) -> dict[str, object]:
        ages: dict[str, object] = {"age": int(self.age)} if self.age.isdigit() else {}
        return ages | ({"company": self.company} if self.company else {})


@dataclass
class Outcome:
    """The expected results of an import."""

    verdicts: list[str] = field(default_factory=list)
    updated: int = 0
    # The line numbers of rows from which the import omits a value: an invalid age, or an expiry
    # date for a member on the free tier.
    left_out: list[int] = field(default_factory=list)

    def counts(self) -> dict[str, int]:
        counts = dict.fromkeys((ADDED, ALREADY, OPTED_OUT, INVALID, DUPLICATE, DENIED), 0)
        for verdict in self.verdicts:
            counts[_COUNTED_AS.get(verdict, verdict)] += 1
        return {**counts, "received": len(self.verdicts), "updated": self.updated}

    def not_added(self) -> list[tuple[int, str]]:
        """Return the line number and error code of each row that doesn't add a complete member.

        The header of the file is line 1.
        """
        return [
            (number, CODES.get(verdict, "row.left_out"))
            for number, verdict in enumerate(self.verdicts, start=2)
            if verdict != ADDED or number in self.left_out
        ]


@dataclass
class ExpectedList:
    """The members and the opt-outs of a list, by e-mail address."""

    members: dict[str, Member] = field(default_factory=dict)
    opt_outs: dict[str, set[str]] = field(default_factory=dict)

    def import_members(
        self, lines: list[Line], columns: Collection[str] = HEADER, *, update: bool
    ) -> Outcome:
        """Import the rows into this model of the list, and return the expected results.

        ``update``: whether a row may overwrite values of an existing member.
        """
        outcome = Outcome()
        seen_addresses = set[str]()
        # Maps each address to the strictest status in the rows with this address, as an index into
        # ``STATUSES``.
        strictest = dict[str, int]()
        for line in lines:
            strictest[line.address] = max(strictest.get(line.address, 0), line.strictness)
        for number, line in enumerate(lines, start=2):
            address = line.address
            if "@" not in address:
                verdict = INVALID
            elif line.status == "unconfirmed":
                verdict = NOT_SUBSCRIBED
            elif address in seen_addresses or line.strictness < strictest[address]:
                verdict = DUPLICATE
            else:
                seen_addresses.add(address)
                verdict = self._decide(address, line, columns, outcome, update=update)
            outcome.verdicts.append(verdict)
            is_written = verdict == ADDED or (verdict == ALREADY and update)
            has_expiry = bool(line.expiry) and "paid_expiry" in columns
            has_tier = bool(line.tier) and "tier" in columns
            if is_written and has_expiry and not has_tier and self.members[address].tier == "free":
                outcome.left_out.append(number)
            if line.age and not line.age.isdigit() and verdict in {ADDED, ALREADY}:
                outcome.left_out.append(number)
        return outcome

    def _decide(
        self,
        address: str,
        line: Line,
        columns: Collection[str],
        outcome: Outcome,
        *,
        update: bool,
    ) -> str:
        member = self.members.get(address)
        opt_outs = self.opt_outs.setdefault(address, set())
        if line.status != "subscribed":
            opt_outs.add("list")
            if member is not None and member.status in {"active", "pending"}:
                self.members[address] = replace(member, status="unsubscribed")
            return LEFT
        if member is not None and member.status == "active":
            changed = _apply_line(member, line, columns, update=update)
            if changed != member:
                outcome.updated += 1
                self.members[address] = changed
            return ALREADY
        if "list" in opt_outs:
            return OPTED_OUT
        new_member = member or Member("removed", mail="email" not in opt_outs)
        self.members[address] = replace(
            _apply_line(new_member, line, columns, update=True), status="active"
        )
        return ADDED


def _apply_line(member: Member, line: Line, columns: Collection[str], *, update: bool) -> Member:
    filled = replace(
        member,
        fields={**member.fields, **line.fields} if update else {**line.fields, **member.fields},
        tags=member.tags | line.tags,
        joined=member.joined or line.joined,
    )
    if not update:
        return filled
    tier = line.tier if "tier" in columns else ""
    return replace(
        filled,
        name=line.name or member.name,
        tier=tier or member.tier,
        expiry=_new_expiry(member, tier, line.expiry, columns),
    )


def _new_expiry(member: Member, tier: str, expiry: str, columns: Collection[str]) -> str | None:
    if "free" in (tier, tier or member.tier):
        return None
    if "paid_expiry" in columns and (expiry or tier or "tier" not in columns):
        return expiry or None
    return None if tier and member.expiry == PAST_EXPIRY else member.expiry


@dataclass(frozen=True)
class PriorState:
    """The state of a person on the list before the import."""

    member: Member | None
    opt_out_kinds: frozenset[str]
    # Whether the person was erased after opting out. Only the hashed address identifies the opt-out
    # of an erased person.
    erased: bool
    # Whether the opt-out's address is hashed with the older one of two secret keys.
    older_key: bool


@st.composite
def prior_states(draw: st.DrawFn) -> PriorState:
    opt_out_kinds = draw(st.sets(st.sampled_from(["list", "email"]), max_size=2))
    erased = bool(opt_out_kinds) and draw(st.booleans())
    member = None
    if not erased and draw(st.integers(0, 3)):
        other_statuses = ["pending", "removed", "unsubscribed"]
        status = draw(st.sampled_from(["active", "active", "active", *other_statuses]))
        tier = draw(st.sampled_from(["free", "silver", "gold"]))
        expiry = draw(st.sampled_from(EXPIRIES)) if tier != "free" else ""
        member = Member(
            "unsubscribed" if "list" in opt_out_kinds and status == "active" else status,
            mail="email" not in opt_out_kinds and draw(st.booleans()),
            tier=tier,
            expiry=expiry or None,
            name=draw(st.sampled_from([None, "Ada", "Bea"])),
        )
    if member is not None and member.status == "active":
        line = draw(st.builds(Line, st.just(""), age=st.sampled_from(["", "1"]), **EXTRA_CELLS))
        member = replace(member, fields=line.fields, tags=line.tags, joined=line.joined)
    return PriorState(member, frozenset(opt_out_kinds), erased, draw(st.booleans()))


@st.composite
def random_lines(draw: st.DrawFn) -> tuple[int, bool, Line]:
    """Generate a random row of the imported file.

    Returns the index of the person in ``people``, whether the address is in capitals, and the other
    cells of the row. For a row with an invalid address, the index of the person is -1.
    """
    tier = draw(st.sampled_from(["", "", "free", "silver", "gold"]))
    expiry = draw(st.sampled_from(EXPIRIES)) if tier != "free" else ""
    name = draw(st.sampled_from(["", "Ada", "Bea", "Zoë \\ Ω", "a;b\\t"]))
    status = draw(st.sampled_from(["subscribed"] * 12 + [*STATUSES]))
    person_number = draw(st.integers(-1, PERSON_COUNT - 1))
    later_cells = {**EXTRA_CELLS, "age": st.sampled_from(["", "1", "2", "old"])}
    line = st.builds(Line, *map(st.just, ("", name, tier, expiry, status)), **later_cells)
    return person_number, draw(st.booleans()), draw(line)


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
    people=st.lists(prior_states(), min_size=PERSON_COUNT, max_size=PERSON_COUNT),
    file=st.lists(random_lines(), min_size=5, max_size=14),
    update=st.booleans(),
    missing=st.sampled_from([set(), {"tier"}, {"paid_expiry"}, {"tier", "paid_expiry"}]),
    chunk=st.integers(2, 6),
)
def test_import_of_any_random_file_matches_the_model_and_is_undone_completely(
    importing: ImportRunner,
    *,
    people: list[PriorState],
    file: list[tuple[int, bool, Line]],
    update: bool,
    missing: set[str],
    chunk: int,
) -> None:
    owner = importing.stack.create_owner()
    list_id = importing.new_list(owner)
    tag = random_hash_id(8)
    model = _create_people(importing, owner, list_id, people, tag)
    rows = [_set_address(each, tag) for each in file]
    columns = [name for name in HEADER if name not in missing]
    file_bytes = csv_of([row.cells(columns) for row in rows], columns)
    options = {"on_existing": "update" if update else "skip"}
    before = importing.records(list_id)
    opt_outs_before = importing.opt_outs(list_id)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks, "ROWS_PER_CHUNK", chunk)
        dry_run = importing.import_members(owner, list_id, file_bytes, dry_run=True, **options)
        assert importing.records(list_id) == before
        assert importing.opt_outs(list_id) == opt_outs_before
        user_count_query = "SELECT count(*) FROM users WHERE email LIKE %s"
        user_count = sum(not each.erased for each in people)
        assert importing.stack.query(user_count_query, f"%.{tag}@example.com") == [(user_count,)]
        finished_import = importing.import_members(owner, list_id, file_bytes, **options)

    expected_model = copy.deepcopy(model)
    outcome = expected_model.import_members(rows, columns, update=update)
    for task in (dry_run, finished_import):
        assert (counts_of(task), task.left_out) == (outcome.counts(), len(outcome.left_out))
        not_added_rows = [(int(line), code) for *_, line, code, _ in importing.not_added(task.id)]
        # Sort the rows, because the opt-outs of a long file are in separate chunks.
        assert sorted(not_added_rows) == outcome.not_added()
    _require_model(importing, owner, list_id, expected_model)
    added = outcome.counts()["added"]
    expected_undo = {"import_id": finished_import.id, "undone": added, "kept": 0}
    assert importing.undo(owner, finished_import.id) == expected_undo
    opted_out_addresses = {
        row.email.lower()
        for row, verdict in zip(rows, outcome.verdicts, strict=True)
        if verdict == "left"
    }
    assert _exclude_addresses(
        importing.records(list_id), opted_out_addresses
    ) == _exclude_addresses(before, opted_out_addresses)
    if not opted_out_addresses:
        assert importing.records(list_id) == before
        assert importing.opt_outs(list_id) == opt_outs_before
    assert importing.count(list_id) == len(importing.active(list_id))


def _build_address(person_number: int, tag: str) -> str:
    return f"p{person_number}.{tag}@example.com"


def _set_address(row: tuple[int, bool, Line], tag: str) -> Line:
    person_number, is_upper_case, line = row
    email = _build_address(person_number, tag) if person_number >= 0 else "nobody"
    return replace(line, email=email.upper() if is_upper_case else email)


def _create_people(
    importing: ImportRunner, owner: Owner, list_id: int, people: list[PriorState], tag: str
) -> ExpectedList:
    model = ExpectedList()
    field_ids = create_company_and_age(importing.resources, owner)
    with importing.resources.unit_of_work() as uow:
        tag_ids = tags.find_tag_ids(uow, list_id, TAGS, create=True)
        for person_number, each in enumerate(people):
            address = _build_address(person_number, tag)
            user_id = None
            if not each.erased:
                user_id = random_id()
                uow.session.add(User(id=user_id, email=address))
                uow.session.flush()
            model.opt_outs[address] = set(each.opt_out_kinds)
            uow.session.add_all(_build_opt_outs(importing, list_id, user_id, address, each))
            if (member := each.member) is not None:
                model.members[address] = member
                stored_values = {
                    "fields": {str(field_ids[key]): each for key, each in member.fields.items()},
                    "tag_ids": sorted(tag_ids[each] for each in member.tags),
                    "joined_at": _parse_date(member.joined),
                }
                uow.session.add(
                    _build_subscription(list_id, user_id or 0, address, member, **stored_values)
                )
    return model


def _build_opt_outs(
    importing: ImportRunner, list_id: int, user_id: int | None, address: str, before: PriorState
) -> list[OptOut]:
    keyring = importing.resources.keyring
    digest = opt_out_checks.compute_address_digests(keyring, address)[int(before.older_key)]
    shared_values = {
        "list_id": list_id,
        "user_id": user_id,
        "address_hmac": digest,
        "source": "login",
    }
    return [OptOut(kind=kind, **shared_values) for kind in sorted(before.opt_out_kinds)]


def _parse_date(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text).replace(tzinfo=UTC) if text else None


def _build_subscription(
    list_id: int, user_id: int, address: str, member: Member, **stored_values: Any
) -> Subscription:
    return Subscription(
        list_id=list_id,
        user_id=user_id,
        status=member.status,
        type=member.tier,
        paid_expiry=_parse_date(member.expiry),
        email_enabled=member.mail,
        name=member.name,
        email=address,
        source="subscribe",
        **stored_values,
    )


def _require_model(
    importing: ImportRunner, owner: Owner, list_id: int, model: ExpectedList
) -> None:
    with importing.resources.unit_of_work() as uow:
        query = select(Subscription).where(Subscription.list_id == list_id)
        subscriptions = uow.session.scalars(query).all()
        owner_fields = fields.read_own_fields(uow, owner.account_id)
        tag_names = tags.find_tag_names(
            uow, [tag_id for each in subscriptions for tag_id in each.tag_ids]
        )
    members = {
        str(each.email): Member(
            each.status,
            mail=each.email_enabled,
            tier=each.type,
            expiry=expiry_of(each),
            name=each.name,
            fields=owner_fields.replace_ids(each.fields),
            tags=frozenset(tag_names[tag_id] for tag_id in each.tag_ids),
            joined=f"{each.joined_at:%Y-%m-%d}" if each.joined_at else "",
        )
        for each in subscriptions
    }
    assert members == model.members
    assert importing.count(list_id) == sum(each.status == "active" for each in members.values())
    assert {address for address, kinds in model.opt_outs.items() if "list" in kinds}.isdisjoint(
        importing.active(list_id)
    )


def _exclude_addresses(records: Rows, addresses: set[str]) -> Rows:
    return [row for row in records if addresses.isdisjoint(str(cell) for cell in row)]
