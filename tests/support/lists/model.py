"""The rules of subscriptions in plain words, to hold the product against. It knows no database."""

from dataclasses import dataclass, field, replace

PENDING, ACTIVE, UNSUBSCRIBED, REMOVED = "pending", "active", "unsubscribed", "removed"
LIST, EMAIL = "list", "email"
TIERS = ("free", "silver", "gold")

# The status of a reply, and its data; or the code of an error.
Reply = tuple[int, object]
ACCEPTED: Reply = (200, 1)
NO_LIST: Reply = (404, "list.not_found")
NO_MEMBER: Reply = (404, "member.not_found")
NOT_OWNER: Reply = (403, "list.not_owner")


@dataclass
class ListRules:
    owner: int
    confirm_required: bool = False
    challenge: bool = False
    archived: bool = False


@dataclass
class Record:
    status: str
    mail: bool = True
    tier: str = "free"
    # ISO 8601; a paid tier without one does not end.
    expiry: str | None = None
    # The status that undoing the person's leave gives back.
    left_from: str = ACTIVE

    def become(self, status: str) -> None:
        if status == UNSUBSCRIBED != self.status:
            self.left_from = PENDING if self.status == PENDING else ACTIVE
        self.status = status


@dataclass
class Link:
    """A confirmation that was mailed."""

    list: str
    person: str
    secret: str
    is_used: bool = False
    is_dead: bool = False


@dataclass
class Import:
    """Who was made active by one, what they were before (None: not there), and its counts."""

    before: dict[tuple[str, str], Record | None] = field(default_factory=dict)
    counts: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("added", "already", "opted_out"), 0)
    )


@dataclass
class Model:
    lists: dict[str, ListRules]
    records: dict[tuple[str, str], Record] = field(default_factory=dict)
    noes: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    links: list[Link] = field(default_factory=list)

    def said_no(self, of: str, person: str) -> set[str]:
        return self.noes.setdefault((of, person), set())

    def count(self, of: str) -> int:
        return sum(each.status == ACTIVE for (on, _), each in self.records.items() if on == of)

    def stranger_asks(self, of: str, person: str) -> Reply:
        if self.lists[of].archived:
            return NO_LIST
        record, said_no = self.records.get((of, person)), self.said_no(of, person)
        is_known = record is not None
        if record is None:
            record = self.records[of, person] = Record(REMOVED, mail=EMAIL not in said_no)
        if record.status != ACTIVE:
            must_confirm = self.lists[of].confirm_required or said_no or is_known
            record.become(PENDING if must_confirm else ACTIVE)
        return ACCEPTED

    def join(self, of: str, person: str) -> Reply:
        if self.lists[of].archived:
            return NO_LIST
        record = self.records.get((of, person))
        if record is not None and record.status == ACTIVE:
            return 200, 0
        self._own_yes(of, person)
        return ACCEPTED

    def leave(self, of: str, person: str) -> Reply:
        self.said_no(of, person).add(LIST)
        record = self.records.get((of, person))
        if record is not None and record.status in (PENDING, ACTIVE):
            record.become(UNSUBSCRIBED)
        return ACCEPTED

    def undo_leave(self, of: str, person: str) -> None:
        self.said_no(of, person).discard(LIST)
        record = self.records.get((of, person))
        if record is not None and record.status == UNSUBSCRIBED:
            record.become(record.left_from)

    def switch_mail(self, of: str, person: str, *, enabled: bool) -> Reply:
        if enabled:
            self.said_no(of, person).discard(EMAIL)
        else:
            self.said_no(of, person).add(EMAIL)
        record = self.records.get((of, person))
        if record is not None:
            record.mail = enabled
        return ACCEPTED

    def confirm(self, link: Link) -> str | None:
        """The code of an error."""
        if link.is_dead:
            return "link.invalid"
        if self.lists[link.list].archived:
            return "list.not_found"
        record = self.records.get((link.list, link.person))
        if record is None or record.status not in (PENDING, ACTIVE):
            return "subscription.not_pending"
        if record.status == ACTIVE:
            return None
        if link.is_used:
            return "link.used"
        link.is_used = True
        self._own_yes(link.list, link.person)
        return None

    def _own_yes(self, of: str, person: str) -> None:
        self.said_no(of, person).clear()
        record = self.records.setdefault((of, person), Record(REMOVED))
        record.become(ACTIVE)
        record.mail = True

    def error(self, owner: int, *lists: str) -> Reply | None:
        for of in lists:
            if self.lists[of].archived:
                return NO_LIST
            if self.lists[of].owner != owner:
                return NOT_OWNER
        return None

    def remove(self, owner: int, of: str, person: str) -> Reply:
        if error := self.error(owner, of):
            return error
        record = self.records.get((of, person))
        if record is None:
            return NO_MEMBER
        was = record.status
        record.become(REMOVED)
        return 200, int(was != REMOVED)

    def owner_switches_mail(self, owner: int, of: str, person: str, *, enabled: bool) -> Reply:
        if error := self.error(owner, of):
            return error
        record = self.records.get((of, person))
        if record is None:
            return NO_MEMBER
        if enabled and self.said_no(of, person):
            return 409, "subscription.opted_out"
        was, record.mail = record.mail, enabled
        return 200, int(was != enabled)

    def edit(self, owner: int, of: str, person: str, tier: str, expiry: str | None) -> Reply:
        if error := self.error(owner, of):
            return error
        record = self.records.get((of, person))
        if record is None:
            return NO_MEMBER
        record.tier, record.expiry = tier, expiry
        return 200, tier

    def put(self, owner: int, of: str, person: str, tier: str) -> Reply:
        if error := self.error(owner, of):
            return error
        record, said_no = self.records.get((of, person)), self.said_no(of, person)
        if LIST in said_no or (record is not None and record.status == UNSUBSCRIBED):
            return 409, "subscription.opted_out"
        if record is None:
            record = self.records[of, person] = Record(REMOVED)
        if record.status == REMOVED:
            record.mail = record.mail and EMAIL not in said_no
            record.become(ACTIVE)
        record.tier = tier
        return 200, tier

    def archive(self, owner: int, of: str) -> Reply:
        if error := self.error(owner, of):
            return error
        self.lists[of].archived = True
        return ACCEPTED

    def transfer(self, owner: int, source: str, target: str, person: str) -> Reply:
        if error := self.error(owner, source, target):
            return error
        if source == target:
            return 400, "transfer.same_list"
        leaving, there = self.records.get((source, person)), self.records.get((target, person))
        if leaving is None:
            return NO_MEMBER
        if leaving.status == REMOVED:
            return 200, 0
        said_no = self.said_no(target, person)
        said_no |= self.said_no(source, person)
        others = [there] if there is not None and there.status != REMOVED else []
        arriving = there or Record(REMOVED)
        merged = _merged([leaving, *others], said_no)
        arriving.become(merged.status)
        arriving.mail, arriving.tier, arriving.expiry = merged.mail, merged.tier, merged.expiry
        self.records[target, person] = arriving
        if leaving.status == PENDING:
            self._lead_links(source, target, person)
        leaving.become(REMOVED)
        return ACCEPTED

    def bring(self, of: str, rows: list[tuple[str, bool]]) -> Import:
        """Rows are people, and whether the file says that they left."""
        done = Import()
        for person, left in rows:
            record, said_no = self.records.get((of, person)), self.said_no(of, person)
            if left:
                verdict = "opted_out"
                said_no.add(LIST)
                if record is not None and record.status in (PENDING, ACTIVE):
                    record.become(UNSUBSCRIBED)
            elif record is not None and record.status == ACTIVE:
                verdict = "already"
            elif LIST in said_no:
                verdict = "opted_out"
            else:
                verdict = "added"
                done.before[of, person] = None if record is None else replace(record)
                arriving = record or Record(REMOVED, mail=EMAIL not in said_no)
                arriving.become(ACTIVE)
                self.records[of, person] = arriving
            done.counts[verdict] += 1
        return done

    def take_back(self, before: dict[tuple[str, str], Record | None]) -> None:
        """Of those whom nobody touched since."""
        for pair, was in before.items():
            if was is None:
                del self.records[pair]
            else:
                self.records[pair] = was

    def _lead_links(self, source: str, target: str, person: str) -> None:
        for link in self.links:
            if (link.list, link.person) == (source, person) and not link.is_used:
                link.list = target

    def erase(self, person: str) -> None:
        """The records are nobody's now; what the person said no to is known by the address."""
        for of in self.lists:
            self.records.pop((of, person), None)
        for link in self.links:
            link.is_dead = link.is_dead or link.person == person


def _merged(both: list[Record], said_no: set[str]) -> Record:
    statuses = {each.status for each in both}
    if ACTIVE in statuses and LIST not in said_no:
        status = ACTIVE
    elif PENDING in statuses:
        status = PENDING
    else:
        status = UNSUBSCRIBED
    best = max(both, key=lambda each: TIERS.index(each.tier))
    mail = EMAIL not in said_no and all(each.mail for each in both)
    return replace(best, status=status, mail=mail, expiry=_later(both))


def _later(both: list[Record]) -> str | None:
    if any(each.tier != "free" and each.expiry is None for each in both):
        return None
    return max((each.expiry for each in both if each.expiry), default=None)
