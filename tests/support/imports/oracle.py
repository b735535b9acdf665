"""What an import is to do with a list, in plain Python, to hold the product against."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

ADDED, ALREADY, OPTED_OUT = "added", "already", "opted_out"
INVALID, DUPLICATE, LEFT, DENIED = "invalid", "duplicate", "left", "denied"
NOT_SUBSCRIBED = "not_subscribed"
HEADER = ("email", "name", "tier", "paid_expiry", "status", "Company", "Age", "tags", "created_at")
PASSED = "2020-01-01T00:00:00.000000Z"
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
    """A row of a file. Without an ``@`` it is no address.

    An age that is no number is left out.
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
        """Return the cells of these columns."""
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
    verdicts: list[str] = field(default_factory=list)
    updated: int = 0
    # Physical lines of rows that were taken over without a value.
    left_out: list[int] = field(default_factory=list)

    def counts(self) -> dict[str, int]:
        found = dict.fromkeys((ADDED, ALREADY, OPTED_OUT, INVALID, DUPLICATE, DENIED), 0)
        for verdict in self.verdicts:
            found[_COUNTED_AS.get(verdict, verdict)] += 1
        return {**found, "received": len(self.verdicts), "updated": self.updated}

    def not_added(self) -> list[tuple[int, str]]:
        """Physical line, the header being the first, and code; also of rows not added whole."""
        return [
            (number, CODES.get(verdict, "row.left_out"))
            for number, verdict in enumerate(self.verdicts, start=2)
            if verdict != ADDED or number in self.left_out
        ]


@dataclass
class Whole:
    """Members by address, and what each address said no to."""

    members: dict[str, Member] = field(default_factory=dict)
    noes: dict[str, set[str]] = field(default_factory=dict)

    def bring(
        self, lines: list[Line], columns: Collection[str] = HEADER, *, update: bool
    ) -> Outcome:
        outcome, seen, strictest = Outcome(), set[str](), dict[str, int]()
        for line in lines:
            strictest[line.address] = max(strictest.get(line.address, 0), line.strictness)
        for number, line in enumerate(lines, start=2):
            address = line.address
            if "@" not in address:
                verdict = INVALID
            elif line.status == "unconfirmed":
                verdict = NOT_SUBSCRIBED
            elif address in seen or line.strictness < strictest[address]:
                verdict = DUPLICATE
            else:
                seen.add(address)
                verdict = self._decide(address, line, columns, outcome, update=update)
            outcome.verdicts.append(verdict)
            is_written = verdict == ADDED or (verdict == ALREADY and update)
            has_end = bool(line.expiry) and "paid_expiry" in columns
            has_tier = bool(line.tier) and "tier" in columns
            if is_written and has_end and not has_tier and self.members[address].tier == "free":
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
        member, said_no = self.members.get(address), self.noes.setdefault(address, set())
        if line.status != "subscribed":
            said_no.add("list")
            if member is not None and member.status in {"active", "pending"}:
                self.members[address] = replace(member, status="unsubscribed")
            return LEFT
        if member is not None and member.status == "active":
            changed = _changed(member, line, columns, update=update)
            if changed != member:
                outcome.updated += 1
                self.members[address] = changed
            return ALREADY
        if "list" in said_no:
            return OPTED_OUT
        arriving = member or Member("removed", mail="email" not in said_no)
        self.members[address] = replace(
            _changed(arriving, line, columns, update=True), status="active"
        )
        return ADDED


def _changed(member: Member, line: Line, columns: Collection[str], *, update: bool) -> Member:
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
    return None if tier and member.expiry == PASSED else member.expiry
