"""Implements the rules of subscriptions in plain Python, as a model to compare Pressroom with."""

from dataclasses import dataclass, field, replace

PENDING, ACTIVE, UNSUBSCRIBED, REMOVED = "pending", "active", "unsubscribed", "removed"
LIST, EMAIL = "list", "email"
TIERS = ("free", "silver", "gold")

# The HTTP status of a response, and the response's data or error code.
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
    # The time (ISO 8601) at which a paid tier ends, or None if the tier never ends.
    expiry: str | None = None
    # The status that the record had before the person unsubscribed. If the person undoes the
    # unsubscription, the record gets the status ``left_from`` again.
    left_from: str = ACTIVE

    def become(self, status: str) -> None:
        if status == UNSUBSCRIBED != self.status:
            self.left_from = PENDING if self.status == PENDING else ACTIVE
        self.status = status


@dataclass
class Link:
    """A confirmation link that was mailed."""

    list: str
    person: str
    secret: str
    is_used: bool = False
    is_dead: bool = False


@dataclass
class Import:
    """The results of an import.

    ``before`` maps each person whom the import has added to a list to the person's record before
    the import, or to None if the person had no record on the list.
    """

    before: dict[tuple[str, str], Record | None] = field(default_factory=dict)
    counts: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("added", "already", "opted_out"), 0)
    )


@dataclass
class Model:
    """The members, opt-outs and confirmation links that a test expects on all lists.

    Attributes:
        records: maps pairs of a list and a person to the person's record on the list.
        opt_outs: maps pairs of a list and a person to the kinds of the person's opt-outs.
    """

    lists: dict[str, ListRules]
    records: dict[tuple[str, str], Record] = field(default_factory=dict)
    opt_outs: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    links: list[Link] = field(default_factory=list)

    def opt_outs_of(self, list_name: str, person: str) -> set[str]:
        return self.opt_outs.setdefault((list_name, person), set())

    def count(self, list_name: str) -> int:
        return sum(
            record.status == ACTIVE
            for (name, _), record in self.records.items()
            if name == list_name
        )

    def stranger_asks(self, list_name: str, person: str) -> Reply:
        if self.lists[list_name].archived:
            return NO_LIST
        record = self.records.get((list_name, person))
        opt_outs = self.opt_outs_of(list_name, person)
        is_known = record is not None
        if record is None:
            record = self.records[list_name, person] = Record(REMOVED, mail=EMAIL not in opt_outs)
        if record.status != ACTIVE:
            must_confirm = self.lists[list_name].confirm_required or opt_outs or is_known
            record.become(PENDING if must_confirm else ACTIVE)
        return ACCEPTED

    def join(self, list_name: str, person: str) -> Reply:
        if self.lists[list_name].archived:
            return NO_LIST
        record = self.records.get((list_name, person))
        if record is not None and record.status == ACTIVE:
            return 200, 0
        self._consent(list_name, person)
        return ACCEPTED

    def leave(self, list_name: str, person: str) -> Reply:
        self.opt_outs_of(list_name, person).add(LIST)
        record = self.records.get((list_name, person))
        if record is not None and record.status in (PENDING, ACTIVE):
            record.become(UNSUBSCRIBED)
        return ACCEPTED

    def undo_leave(self, list_name: str, person: str) -> None:
        self.opt_outs_of(list_name, person).discard(LIST)
        record = self.records.get((list_name, person))
        if record is not None and record.status == UNSUBSCRIBED:
            record.become(record.left_from)

    def switch_mail(self, list_name: str, person: str, *, enabled: bool) -> Reply:
        if enabled:
            self.opt_outs_of(list_name, person).discard(EMAIL)
        else:
            self.opt_outs_of(list_name, person).add(EMAIL)
        record = self.records.get((list_name, person))
        if record is not None:
            record.mail = enabled
        return ACCEPTED

    def confirm(self, link: Link) -> str | None:
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
        self._consent(link.list, link.person)
        return None

    def _consent(self, list_name: str, person: str) -> None:
        self.opt_outs_of(list_name, person).clear()
        record = self.records.setdefault((list_name, person), Record(REMOVED))
        record.become(ACTIVE)
        record.mail = True

    def error(self, owner: int, *lists: str) -> Reply | None:
        for list_name in lists:
            if self.lists[list_name].archived:
                return NO_LIST
            if self.lists[list_name].owner != owner:
                return NOT_OWNER
        return None

    def remove(self, owner: int, list_name: str, person: str) -> Reply:
        if error := self.error(owner, list_name):
            return error
        record = self.records.get((list_name, person))
        if record is None:
            return NO_MEMBER
        old_status = record.status
        record.become(REMOVED)
        return 200, int(old_status != REMOVED)

    def owner_switches_mail(
        self, owner: int, list_name: str, person: str, *, enabled: bool
    ) -> Reply:
        if error := self.error(owner, list_name):
            return error
        record = self.records.get((list_name, person))
        if record is None:
            return NO_MEMBER
        if enabled and self.opt_outs_of(list_name, person):
            return 409, "subscription.opted_out"
        old_value = record.mail
        record.mail = enabled
        return 200, int(old_value != enabled)

    def edit(self, owner: int, list_name: str, person: str, tier: str, expiry: str | None) -> Reply:
        if error := self.error(owner, list_name):
            return error
        record = self.records.get((list_name, person))
        if record is None:
            return NO_MEMBER
        record.tier, record.expiry = tier, expiry
        return 200, tier

    def put(self, owner: int, list_name: str, person: str, tier: str) -> Reply:
        if error := self.error(owner, list_name):
            return error
        record = self.records.get((list_name, person))
        opt_outs = self.opt_outs_of(list_name, person)
        if LIST in opt_outs or (record is not None and record.status == UNSUBSCRIBED):
            return 409, "subscription.opted_out"
        if record is None:
            record = self.records[list_name, person] = Record(REMOVED)
        if record.status == REMOVED:
            record.mail = record.mail and EMAIL not in opt_outs
            record.become(ACTIVE)
        record.tier = tier
        return 200, tier

    def archive(self, owner: int, list_name: str) -> Reply:
        if error := self.error(owner, list_name):
            return error
        self.lists[list_name].archived = True
        return ACCEPTED

    def transfer(self, owner: int, source: str, target: str, person: str) -> Reply:
        if error := self.error(owner, source, target):
            return error
        if source == target:
            return 400, "transfer.same_list"
        source_record = self.records.get((source, person))
        target_record = self.records.get((target, person))
        if source_record is None:
            return NO_MEMBER
        if source_record.status == REMOVED:
            return 200, 0
        opt_outs = self.opt_outs_of(target, person)
        opt_outs |= self.opt_outs_of(source, person)
        records = [source_record]
        if target_record is not None and target_record.status != REMOVED:
            records.append(target_record)
        merged = _merge_records(records, opt_outs)
        new_record = target_record or Record(REMOVED)
        new_record.become(merged.status)
        new_record.mail = merged.mail
        new_record.tier = merged.tier
        new_record.expiry = merged.expiry
        self.records[target, person] = new_record
        if source_record.status == PENDING:
            self._move_links(source, target, person)
        source_record.become(REMOVED)
        return ACCEPTED

    def import_members(self, list_name: str, rows: list[tuple[str, bool]]) -> Import:
        """Import rows, which are pairs of a person and whether the file marks them as opted out."""
        result = Import()
        for person, left in rows:
            record = self.records.get((list_name, person))
            opt_outs = self.opt_outs_of(list_name, person)
            if left:
                verdict = "opted_out"
                opt_outs.add(LIST)
                if record is not None and record.status in (PENDING, ACTIVE):
                    record.become(UNSUBSCRIBED)
            elif record is not None and record.status == ACTIVE:
                verdict = "already"
            elif LIST in opt_outs:
                verdict = "opted_out"
            else:
                verdict = "added"
                result.before[list_name, person] = None if record is None else replace(record)
                new_record = record or Record(REMOVED, mail=EMAIL not in opt_outs)
                new_record.become(ACTIVE)
                self.records[list_name, person] = new_record
            result.counts[verdict] += 1
        return result

    def undo(self, before: dict[tuple[str, str], Record | None]) -> None:
        """Undo an import for the members in ``before``, who haven't changed since the import."""
        for pair, old_record in before.items():
            if old_record is None:
                del self.records[pair]
            else:
                self.records[pair] = old_record

    def _move_links(self, source: str, target: str, person: str) -> None:
        for link in self.links:
            if (link.list, link.person) == (source, person) and not link.is_used:
                link.list = target

    def erase(self, person: str) -> None:
        """Erase a person, but keep the opt-outs, which belong to the person's address."""
        for list_name in self.lists:
            self.records.pop((list_name, person), None)
        for link in self.links:
            link.is_dead = link.is_dead or link.person == person


def _merge_records(records: list[Record], opt_outs: set[str]) -> Record:
    statuses = {each.status for each in records}
    if ACTIVE in statuses and LIST not in opt_outs:
        status = ACTIVE
    elif PENDING in statuses:
        status = PENDING
    else:
        status = UNSUBSCRIBED
    best = max(records, key=lambda each: TIERS.index(each.tier))
    mail = EMAIL not in opt_outs and all(each.mail for each in records)
    return replace(best, status=status, mail=mail, expiry=_find_latest_expiry(records))


def _find_latest_expiry(records: list[Record]) -> str | None:
    if any(each.tier != "free" and each.expiry is None for each in records):
        return None
    return max((each.expiry for each in records if each.expiry), default=None)
