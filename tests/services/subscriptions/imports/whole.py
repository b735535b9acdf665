"""What an import is to do with a list, in plain Python, to hold the product against."""

from dataclasses import dataclass, field, replace

ADDED, ALREADY, OPTED_OUT = "added", "already", "opted_out"
INVALID, DUPLICATE, LEFT, DENIED = "invalid", "duplicate", "left", "denied"
CODES = {
    ALREADY: "member.already",
    OPTED_OUT: "member.opted_out",
    LEFT: "member.left",
    INVALID: "email.invalid",
    DUPLICATE: "row.duplicate",
}


@dataclass(frozen=True)
class Member:
    status: str
    mail: bool = True
    tier: str = "free"
    expiry: str | None = None
    name: str | None = None


@dataclass(frozen=True)
class Line:
    """A row of a file. Without an ``@`` it is no address; ``left``: by the file's own mark."""

    email: str
    name: str = ""
    tier: str = ""
    expiry: str = ""
    left: bool = False

    def cells(self) -> list[str]:
        status = "unsubscribed" if self.left else "subscribed"
        return [self.email, self.name, self.tier, self.expiry, status]


HEADER = ("email", "name", "tier", "paid_expiry", "status")


@dataclass
class Outcome:
    verdicts: list[str] = field(default_factory=list)
    updated: int = 0

    def counts(self) -> dict[str, int]:
        found = dict.fromkeys((ADDED, ALREADY, OPTED_OUT, INVALID, DUPLICATE, DENIED), 0)
        for verdict in self.verdicts:
            found[OPTED_OUT if verdict == LEFT else verdict] += 1
        return {**found, "received": len(self.verdicts), "updated": self.updated}

    def not_added(self) -> list[tuple[int, str]]:
        """Physical line, the header being the first, and code."""
        return [
            (number, CODES[verdict])
            for number, verdict in enumerate(self.verdicts, start=2)
            if verdict != ADDED
        ]


@dataclass
class Whole:
    """Members by address, and what each address said no to."""

    members: dict[str, Member] = field(default_factory=dict)
    noes: dict[str, set[str]] = field(default_factory=dict)

    def bring(self, lines: list[Line], *, update: bool) -> Outcome:
        outcome, seen = Outcome(), set[str]()
        for line in lines:
            address = line.email.lower()
            if "@" not in address:
                verdict = INVALID
            elif address in seen:
                verdict = DUPLICATE
            else:
                seen.add(address)
                verdict = self._decide(address, line, outcome, update=update)
            outcome.verdicts.append(verdict)
        return outcome

    def _decide(self, address: str, line: Line, outcome: Outcome, *, update: bool) -> str:
        member, said_no = self.members.get(address), self.noes.setdefault(address, set())
        if line.left:
            said_no.add("list")
            if member is not None and member.status in {"active", "pending"}:
                self.members[address] = replace(member, status="unsubscribed")
            return LEFT
        if member is not None and member.status == "active":
            changed = _changed(member, line)
            if update and changed != member:
                outcome.updated += 1
                self.members[address] = changed
            return ALREADY
        if "list" in said_no:
            return OPTED_OUT
        arriving = member or Member("removed", mail="email" not in said_no)
        self.members[address] = replace(_changed(arriving, line), status="active")
        return ADDED


def _changed(member: Member, line: Line) -> Member:
    named = replace(member, name=line.name or member.name)
    return replace(named, tier=line.tier, expiry=line.expiry or None) if line.tier else named
