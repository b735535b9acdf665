"""Reads the rows of mailing lists from the database, and compares them with ``Model``."""

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
    """The database rows of several mailing lists, all of which were read in one transaction.

    The keys of ``records`` and ``events`` are pairs of a list id and a user id. The keys of
    ``opt_outs`` are pairs of a list id and an e-mail address. ``counts`` maps each list to its
    number of subscribers.
    """

    records: dict[tuple[int, int], Subscription]
    events: dict[tuple[int, int], list[SubscriptionEvent]]
    opt_outs: dict[tuple[int, str], set[str]]
    counts: dict[int, int]


@dataclass(frozen=True)
class People:
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
        opt_outs = uow.session.scalars(select(OptOut).where(OptOut.list_id.in_(list_ids)))
        return Observed(
            records={(each.list_id, each.user_id): each for each in records},
            events=events,
            opt_outs=_group_by_address(resources, list(opt_outs), people),
            counts=subscriber_counts.count_subscribers(uow, list_ids),
        )


def expiry_of(record: Subscription) -> str | None:
    return (
        None if record.paid_expiry is None else format_timestamp(record.paid_expiry.astimezone(UTC))
    )


def _group_by_address(
    resources: Resources, opt_outs: list[OptOut], people: People
) -> dict[tuple[int, str], set[str]]:
    keyring = resources.keyring
    addresses = {
        digest: address
        for address in people.addresses
        for digest in opt_out_checks.compute_address_digests(keyring, address)
    }
    kinds: dict[tuple[int, str], set[str]] = {}
    for opt_out in opt_outs:
        # If an opt-out has a user id, its digest must be the digest of this user's address.
        address = addresses[opt_out.address_hmac]
        if opt_out.user_id is not None:
            assert people.living[opt_out.user_id] == address
        kinds.setdefault((opt_out.list_id, address), set()).add(opt_out.kind)
    return kinds


def require_opt_outs_hold(seen: Observed, people: People) -> None:
    """Require that the subscriptions respect all opt-outs."""
    for (list_id, user_id), record in seen.records.items():
        opt_outs = seen.opt_outs.get((list_id, people.living.get(user_id, "")), set())
        assert record.status != ACTIVE or LIST not in opt_outs, (list_id, user_id)
        assert not record.email_enabled or EMAIL not in opt_outs, (list_id, user_id)


def require_counts_are_true(seen: Observed) -> None:
    """Require that the stored subscriber count of each list equals its number of active members."""
    active_counts = dict.fromkeys(seen.counts, 0)
    for (list_id, _), record in seen.records.items():
        active_counts[list_id] += record.status == ACTIVE
    assert seen.counts == active_counts


def require_unbroken_history(seen: Observed) -> None:
    """Require that the history of each subscription ends with the subscription's current status.

    Each event must begin with the status and the mail setting that the previous event set.
    """
    assert seen.events.keys() <= seen.records.keys()
    for pair, record in seen.records.items():
        events = seen.events.get(pair, [])
        state: tuple[str | None, bool | None] = (None, None)
        if record.source == "import":
            # An import writes no event for a new member, because an import may add millions of
            # members.
            assert record.import_id is not None
            state = (ACTIVE, events[0].email_enabled_before if events else record.email_enabled)
        for event in events:
            assert (event.status_before, event.email_enabled_before) == state, (pair, event.action)
            assert event.status_after is not None
            state = (event.status_after, event.email_enabled_after)
        assert (record.status, record.email_enabled) == state, pair


def require_as_modelled(
    seen: Observed, model: Model, ids: dict[str, int], people: dict[str, Person]
) -> None:
    """Require that the data in the database equals the data of ``model``."""
    for list_name, list_id in ids.items():
        assert seen.counts[list_id] == model.count(list_name)
        for name, person in people.items():
            opt_outs = seen.opt_outs.get((list_id, person.address), set())
            assert opt_outs == model.opt_outs_of(list_name, name), (list_name, name)
            _require_blank(seen, list_id, person)
            _require_record(seen, model, list_id, (list_name, name), person)


def _require_blank(seen: Observed, list_id: int, person: Person) -> None:
    """Require that the records of erased users contain no personal data."""
    for user_id in person.gone:
        blank = seen.records.get((list_id, user_id))
        if blank is not None:
            assert (blank.status, blank.email_enabled) == ("removed", False)
            assert (blank.name, blank.email) == (None, None)


def _require_record(
    seen: Observed, model: Model, list_id: int, pair: tuple[str, str], person: Person
) -> None:
    record = seen.records.get((list_id, person.user_id or 0))
    expected = model.records.get(pair)
    assert (record is None) == (expected is None), pair
    if record is None or expected is None:
        return
    assert (record.status, record.email_enabled) == (expected.status, expected.mail), pair
    assert (record.type, expiry_of(record)) == (expected.tier, expected.expiry), pair


def require_opt_outs_kept(
    before: Observed, seen: Observed, by: tuple[int, str] | None, lifted: set[str]
) -> None:
    """Require that the last action removed no opt-out, except opt-outs that a person withdrew.

    ``by``: the list id and the address of the person who withdrew opt-outs in the last action, or
    ``None``. ``lifted``: the kinds of the opt-outs that the person withdrew.
    """
    for (list_id, address), opt_outs in before.opt_outs.items():
        lost = opt_outs - seen.opt_outs.get((list_id, address), set())
        if (list_id, address) == by:
            lost -= lifted
        assert not lost, f"{address} has opted out of {lost}, and somebody else has changed that"
