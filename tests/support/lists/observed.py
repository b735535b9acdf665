"""What the database holds of some lists, against what the rules say."""

from dataclasses import dataclass
from datetime import UTC

from sqlalchemy import select

from core.clock import format_timestamp
from models import OptOut, Subscription, SubscriptionEvent
from services.subscriptions import subscriber_counts
from services.subscriptions.members import opt_out_checks
from storage.resources import Resources
from tests.support.lists.acting import Person
from tests.support.lists.model import ACTIVE, EMAIL, LIST, Model


@dataclass(frozen=True)
class Observed:
    """Everything of one moment. Keys are list id and user id; of opt-outs, list id and address."""

    records: dict[tuple[int, int], Subscription]
    events: dict[tuple[int, int], list[SubscriptionEvent]]
    noes: dict[tuple[int, str], set[str]]
    counts: dict[int, int]


@dataclass(frozen=True)
class People:
    """Every address there is, and who has one now: users who are not erased."""

    addresses: list[str]
    living: dict[int, str]


def observe(resources: Resources, list_ids: list[int], people: People) -> Observed:
    with resources.unit_of_work() as uow:
        records = uow.session.scalars(
            select(Subscription).where(Subscription.list_id.in_(list_ids))
        )
        events: dict[tuple[int, int], list[SubscriptionEvent]] = {}
        for event in uow.session.scalars(
            select(SubscriptionEvent)
            .where(SubscriptionEvent.list_id.in_(list_ids))
            .order_by(SubscriptionEvent.id)
        ):
            events.setdefault((event.list_id, event.user_id), []).append(event)
        found = uow.session.scalars(select(OptOut).where(OptOut.list_id.in_(list_ids)))
        return Observed(
            records={(each.list_id, each.user_id): each for each in records},
            events=events,
            noes=_by_address(resources, list(found), people),
            counts=subscriber_counts.count_subscribers(uow, list_ids),
        )


def expiry_of(record: Subscription) -> str | None:
    return (
        None if record.paid_expiry is None else format_timestamp(record.paid_expiry.astimezone(UTC))
    )


def _by_address(
    resources: Resources, found: list[OptOut], people: People
) -> dict[tuple[int, str], set[str]]:
    keyring = resources.keyring
    by_digest = {
        digest: address
        for address in people.addresses
        for digest in opt_out_checks.compute_address_digests(keyring, address)
    }
    noes: dict[tuple[int, str], set[str]] = {}
    for each in found:
        # Whose user is known is theirs, whose is not belongs to the address that it is a digest of.
        address = by_digest[each.address_hmac]
        if each.user_id is not None:
            assert people.living[each.user_id] == address
        noes.setdefault((each.list_id, address), set()).add(each.kind)
    return noes


def require_opt_outs_hold(seen: Observed, people: People) -> None:
    """No active subscription against a no to the list, no mail against a no to mail."""
    for (list_id, user_id), record in seen.records.items():
        said_no = seen.noes.get((list_id, people.living.get(user_id, "")), set())
        assert record.status != ACTIVE or LIST not in said_no, (list_id, user_id)
        assert not record.email_enabled or EMAIL not in said_no, (list_id, user_id)


def require_counts_are_true(seen: Observed) -> None:
    truth = dict.fromkeys(seen.counts, 0)
    for (list_id, _), record in seen.records.items():
        truth[list_id] += record.status == ACTIVE
    assert seen.counts == truth


def require_unbroken_history(seen: Observed) -> None:
    """Each event begins where the one before it ended, and the last one ends at what is."""
    assert seen.events.keys() <= seen.records.keys()
    for pair, record in seen.records.items():
        events = seen.events.get(pair, [])
        now: tuple[str | None, bool | None] = (None, None)
        if record.source == "import":
            # Its coming is told by the import: a million members are no million events.
            assert record.import_id is not None
            now = (ACTIVE, events[0].email_enabled_before if events else record.email_enabled)
        for event in events:
            assert (event.status_before, event.email_enabled_before) == now, (pair, event.action)
            assert event.status_after is not None
            now = (event.status_after, event.email_enabled_after)
        assert (record.status, record.email_enabled) == now, pair


def require_as_modelled(
    seen: Observed, model: Model, ids: dict[str, int], people: dict[str, Person]
) -> None:
    for of, list_id in ids.items():
        assert seen.counts[list_id] == model.count(of)
        for name, person in people.items():
            said_no = seen.noes.get((list_id, person.address), set())
            assert said_no == model.said_no(of, name), (of, name)
            _require_blank(seen, list_id, person)
            _require_record(seen, model, list_id, (of, name), person)


def _require_blank(seen: Observed, list_id: int, person: Person) -> None:
    for user_id in person.gone:
        blank = seen.records.get((list_id, user_id))
        if blank is not None:
            assert (blank.status, blank.email_enabled) == ("removed", False)
            assert (blank.name, blank.email) == (None, None)


def _require_record(
    seen: Observed, model: Model, list_id: int, pair: tuple[str, str], person: Person
) -> None:
    record, rules = seen.records.get((list_id, person.user_id or 0)), model.records.get(pair)
    assert (record is None) == (rules is None), pair
    if record is None or rules is None:
        return
    assert (record.status, record.email_enabled) == (rules.status, rules.mail), pair
    assert (record.type, expiry_of(record)) == (rules.tier, rules.expiry), pair


def require_nothing_lifted(
    before: Observed, seen: Observed, by: tuple[int, str] | None, lifted: set[str]
) -> None:
    """Nobody's no is gone but what the person ``by`` (list, address) took back themselves."""
    for (list_id, address), said_no in before.noes.items():
        lost = said_no - seen.noes.get((list_id, address), set())
        if (list_id, address) == by:
            lost -= lifted
        assert not lost, f"{address} said no to {lost}, which somebody else took back"
