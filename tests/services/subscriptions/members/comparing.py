"""What is, against what the rules say."""

from tests.services.subscriptions.members.acting import Person
from tests.services.subscriptions.members.model import Model
from tests.services.subscriptions.members.observed import Observed, expiry_of


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
