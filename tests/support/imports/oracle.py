"""Computes the expected results of an import in plain Python, to check Pressroom's results."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

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
