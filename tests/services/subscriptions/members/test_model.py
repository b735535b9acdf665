"""Tests the rules for subscriptions with random sequences of actions.

Subscribers, owners, strangers and the operator perform the actions, for example with API calls. The
expected results come from the rules in the module `model`.
"""

from typing import ClassVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from devstack.harness.stack import Owner
from models import Subscription
from services.subscriptions import count_merging
from tests.support.lists.acting import ListActions, Person
from tests.support.lists.model import (
    EMAIL,
    LIST,
    NO_MEMBER,
    PENDING,
    Link,
    ListRules,
    Model,
    Record,
)
from tests.support.lists.observed import (
    Observed,
    People,
    observe,
    require_as_modelled,
    require_counts_are_true,
    require_opt_outs_hold,
    require_opt_outs_kept,
    require_unbroken_history,
)
from tests.support.lists.tallying import Tally
from tests.support.sizes import FULL, sized

LIST_NAMES = st.sampled_from(["challenged", "confirming", "foreign"])
# Most transfers of members are between two lists of the same owner.
TARGET_NAMES = st.sampled_from(["challenged", "confirming", "confirming", "challenged", "foreign"])
PERSON_NAMES = st.sampled_from(["ada", "bea", "unknown"])
OWNER_KINDS = st.sampled_from(["own", "own", "own", "other"])
EXPIRIES = st.sampled_from([None, "2040-01-01T00:00:00.000000Z", "2041-01-01T00:00:00.000000Z"])


class Subscriptions(RuleBasedStateMachine):
    """Performs random actions of two owners and three people on three lists.

    Two of the three people can log in. At first, the third person has no account, only an e-mail
    address.
    """

    acting: ClassVar[ListActions]
    owners: ClassVar[list[Owner]]

    def __init__(self) -> None:
        super().__init__()
        self.model = Model(
            {
                "challenged": ListRules(owner=0, challenge=True),
                "confirming": ListRules(owner=0, confirm_required=True),
                "foreign": ListRules(owner=1),
            }
        )
        self.ids = {
            name: self.acting.new_list(
                self.owners[rules.owner],
                confirm_required=rules.confirm_required,
                challenge=rules.challenge,
            )
            for name, rules in self.model.lists.items()
        }
        self.people = {
            "ada": self.acting.new_person(with_login=True),
            "bea": self.acting.new_person(with_login=True),
            "unknown": self.acting.new_person(with_login=False),
        }
        # Maps the id of each import to the members whose status the import changed to active. Each
        # member is identified by the names of the list and the person. For each member, the inner
        # dictionary contains two records: the model's record before the import, and the database's
        # record after the import.
        self.imports: dict[
            int, dict[tuple[str, str], tuple[Record | None, Subscription | None]]
        ] = {}
        self.steps = 0
        self.observed = self.observe_state()
        self.tally = Tally()
        # The list id and the e-mail address of the person who acts in this step. ``lifted_kinds``
        # contains the kinds of opt-outs that the person's action may cancel.
        self.lifted_by: tuple[int, str] | None = None
        self.lifted_kinds: set[str] = set()

    @rule(list_name=LIST_NAMES, person=PERSON_NAMES)
    def stranger_asks(self, list_name: str, person: str) -> None:
        reader = self.people[person]
        challenge = self.model.lists[list_name].challenge
        reply = self.acting.ask(self.ids[list_name], reader.address, challenge=challenge)
        assert reply == self.model.stranger_asks(list_name, person)
        self.load_user_id(reader)

    @rule(list_name=LIST_NAMES, person=PERSON_NAMES)
    def joins_by_login(self, list_name: str, person: str) -> None:
        reader = self.people[person]
        reply = self.acting.reply(
            "POST", f"/subscriptions/{self.ids[list_name]}/no-challenge", key=reader.key
        )
        if reader.key is None:
            assert reply == (401, "auth.credentials_missing")
            return
        expected = self.model.join(list_name, person)
        assert reply == expected
        if expected == (200, 1):
            self.record_own_action(list_name, person, LIST, EMAIL)

    @rule(data=st.data(), by_login=st.booleans())
    def leaves(self, data: st.DataObject, by_login: bool) -> None:
        list_name, person = self.draw_pair(data)
        reader = self.people[person]
        if reader.user_id is None:
            return
        key = reader.key if by_login else None
        reply = self.acting.leave(self.ids[list_name], key=key, user_id=reader.user_id)
        assert reply == self.model.leave(list_name, person)

    @rule(data=st.data())
    def undoes_leaving(self, data: st.DataObject) -> None:
        list_name, person = self.draw_pair(data)
        reader = self.people[person]
        if reader.user_id is None:
            return
        self.acting.undo_leave(self.ids[list_name], reader.user_id)
        self.model.undo_leave(list_name, person)
        self.record_own_action(list_name, person, LIST)

    @rule(data=st.data(), enabled=st.booleans(), by_login=st.booleans())
    def switches_mail(self, data: st.DataObject, enabled: bool, by_login: bool) -> None:
        list_name, person = self.draw_pair(data)
        reader = self.people[person]
        if reader.user_id is None:
            return
        key = reader.key if by_login else None
        reply = self.acting.switch_mail(
            self.ids[list_name], enabled=enabled, key=key, user_id=reader.user_id
        )
        assert reply == self.model.switch_mail(list_name, person, enabled=enabled)
        if enabled:
            self.record_own_action(list_name, person, EMAIL)

    @rule(data=st.data())
    def switches_mail_off_at_one_click(self, data: st.DataObject) -> None:
        list_name, person = self.draw_pair(data)
        reader = self.people[person]
        if reader.user_id is None:
            return
        reply = self.acting.one_click(self.ids[list_name], reader.user_id)
        assert reply == self.model.switch_mail(list_name, person, enabled=False)

    @rule(list_name=LIST_NAMES, person=PERSON_NAMES, enabled=st.booleans())
    def answers_a_mail_from_before_the_erasure(
        self, list_name: str, person: str, enabled: bool
    ) -> None:
        for user_id in self.people[person].gone:
            assert self.acting.leave(self.ids[list_name], user_id=user_id) == (200, 1)
            reply = self.acting.switch_mail(self.ids[list_name], enabled=enabled, user_id=user_id)
            assert reply == (200, 1)

    @precondition(lambda self: self.list_pending_pairs())
    @rule(data=st.data())
    def is_mailed_a_link(self, data: st.DataObject) -> None:
        list_name, person = data.draw(st.sampled_from(self.list_pending_pairs()))
        user_id = self.people[person].user_id
        assert user_id is not None
        secret = self.acting.mail_link(self.ids[list_name], user_id)
        self.model.links.append(Link(list_name, person, secret))

    @precondition(lambda self: self.model.links)
    @rule(data=st.data())
    def confirms(self, data: st.DataObject) -> None:
        link = data.draw(st.sampled_from(self.model.links[::-1]))
        was_used = link.is_used
        assert self.acting.confirm(link.secret) == self.model.confirm(link)
        if link.is_used != was_used:
            self.record_own_action(link.list, link.person, LIST, EMAIL)

    @rule(data=st.data(), owner=OWNER_KINDS)
    def owner_removes(self, data: st.DataObject, owner: str) -> None:
        list_name, person = self.draw_pair(data)
        number, key = self.get_owner(list_name, owner)
        reply = self.acting.remove(self.ids[list_name], self.get_user_id(person), key)
        assert reply == self.model.remove(number, list_name, person)

    @rule(data=st.data(), owner=OWNER_KINDS, enabled=st.booleans())
    def owner_switches_mail(self, data: st.DataObject, owner: str, enabled: bool) -> None:
        list_name, person = self.draw_pair(data)
        number, key = self.get_owner(list_name, owner)
        path = f"/subscriptions/{self.ids[list_name]}/members/{self.get_user_id(person)}/email"
        reply = self.acting.reply("PUT", path, key=key, json={"enabled": enabled})
        assert reply == self.model.owner_switches_mail(number, list_name, person, enabled=enabled)

    @rule(data=st.data(), to=TARGET_NAMES, back=st.booleans())
    def owner_transfers(self, data: st.DataObject, to: str, back: bool) -> None:
        source, person = self.draw_pair(data)
        number, key = self.get_owner("challenged", "own")
        for from_list, to_list in [(source, to), (to, source)][: 1 + back]:
            user_id = self.get_user_id(person)
            reply = self.acting.transfer(self.ids[from_list], self.ids[to_list], user_id, key)
            assert reply == self.model.transfer(number, from_list, to_list, person)

    @rule(data=st.data(), tier=st.sampled_from(["free", "silver", "gold"]), end=EXPIRIES)
    def owner_edits(self, data: st.DataObject, tier: str, end: str | None) -> None:
        list_name, person = self.draw_pair(data)
        number, key = self.get_owner(list_name, "own")
        path = f"/lists/{self.ids[list_name]}/members/{self.get_user_id(person)}"
        body = {"type": tier, "paid_expiry": end, "name": "Reader"}
        reply = self.acting.reply("PATCH", path, key=key, json=body)
        assert reply == self.model.edit(number, list_name, person, tier, end)

    @rule(
        list_name=LIST_NAMES,
        person=PERSON_NAMES,
        owner=OWNER_KINDS,
        tier=st.sampled_from(["free", "silver"]),
    )
    def owner_puts(self, list_name: str, person: str, owner: str, tier: str) -> None:
        reader = self.people[person]
        number, key = self.get_owner(list_name, owner)
        path = f"/lists/{self.ids[list_name]}/members/{reader.address}"
        reply = self.acting.reply("PUT", path, key=key, json={"type": tier})
        assert reply == self.model.put(number, list_name, person, tier)
        self.load_user_id(reader)

    @rule(list_name=LIST_NAMES, person=PERSON_NAMES)
    def owner_acts_on_the_erased(self, list_name: str, person: str) -> None:
        _, key = self.get_owner(list_name, "own")
        for user_id in self.people[person].gone:
            if not self.model.lists[list_name].archived:
                assert self.acting.remove(self.ids[list_name], user_id, key) == NO_MEMBER

    @rule(
        list_name=LIST_NAMES,
        rows=st.lists(
            st.tuples(PERSON_NAMES, st.sampled_from([False, False, False, True])),
            min_size=1,
            unique_by=lambda row: row[0],
        ),
    )
    def owner_imports(self, list_name: str, rows: list[tuple[str, bool]]) -> None:
        if self.model.lists[list_name].archived:
            return
        rows_with_addresses = [
            (self.people[person].address, is_opted_out) for person, is_opted_out in rows
        ]
        result = self.acting.import_members(
            self.ids[list_name], rows_with_addresses, self.get_owner(list_name, "own")[1]
        )
        outcome = self.model.import_members(list_name, rows)
        assert {name: result[name] for name in outcome.counts} == outcome.counts
        for person, _ in rows:
            self.load_user_id(self.people[person])
        observed = self.observe_state()
        self.imports[result["import_id"]] = {
            pair: (before, self.find_record(observed, pair))
            for pair, before in outcome.before.items()
        }

    @precondition(lambda self: self.imports)
    @rule(data=st.data())
    def owner_undoes_an_import(self, data: st.DataObject) -> None:
        import_id = data.draw(st.sampled_from(sorted(self.imports)))
        imported = self.imports.pop(import_id)
        observed = self.observe_state()
        untouched = {
            pair: before
            for pair, (before, record_after) in imported.items()
            if (current_record := self.find_record(observed, pair)) is not None
            and record_after is not None
            and (current_record.id, current_record.updated_at)
            == (record_after.id, record_after.updated_at)
        }
        [(user_id,)] = self.acting.stack.query(
            "SELECT user_id FROM imports WHERE id = %s", import_id
        )
        key = next(owner.key for owner in self.owners if owner.user_id == user_id)
        assert self.acting.undo(import_id, key) == (200, len(untouched))
        self.model.undo(untouched)

    @precondition(lambda self: self.steps > 10)
    @rule(list_name=LIST_NAMES)
    def owner_archives(self, list_name: str) -> None:
        number, key = self.get_owner(list_name, "own")
        reply = self.acting.reply("DELETE", f"/lists/{self.ids[list_name]}", key=key)
        assert reply == self.model.archive(number, list_name)

    @precondition(lambda self: self.steps > 3)
    @rule(person=PERSON_NAMES)
    def operator_erases(self, person: str) -> None:
        reader = self.people[person]
        if reader.user_id is None:
            return
        self.acting.erase(reader.address)
        self.model.erase(person)
        response = self.acting.reply("GET", "/subscriptions", key=reader.key)
        assert response[0] == 401
        reader.gone.append(reader.user_id)
        reader.user_id = reader.key = None

    @rule(max_deltas=st.integers(1, 5))
    def counts_are_folded(self, max_deltas: int) -> None:
        with self.acting.resources.unit_of_work() as uow:
            for merge in (count_merging.SUBSCRIBERS, count_merging.MEMBER_DAYS):
                count_merging.merge_batch(uow, merge, max_changes=max_deltas)

    @invariant()
    def state_matches_the_model(self) -> None:
        before = self.observed
        self.observed = self.observe_state()
        self.steps += 1
        require_as_modelled(self.observed, self.model, self.ids, self.people)
        require_opt_outs_hold(self.observed, self.collect_people())
        require_counts_are_true(self.observed)
        require_unbroken_history(self.observed)
        self.tally.note(before, self.observed)
        self.tally.require_figures(self.acting.resources, self.observed)
        require_opt_outs_kept(before, self.observed, self.lifted_by, self.lifted_kinds)
        self.lifted_by = None
        self.lifted_kinds = set()

    def teardown(self) -> None:
        for list_name, rules in self.model.lists.items():
            if not rules.archived:
                self.require_counts_in_responses(list_name, self.get_owner(list_name, "own")[1])

    def require_counts_in_responses(self, list_name: str, key: str) -> None:
        """Check that the API shows the owner as many members of the list as the model predicts."""
        headers = {"Authorization": f"Bearer {key}"}
        path = f"/lists/{self.ids[list_name]}"
        list_data = self.acting.client.get(path, headers=headers).json()["data"]
        members = self.acting.client.get(f"{path}/subscriptions", headers=headers).json()["data"]
        assert list_data["subscriber_count"] == self.model.count(list_name)
        assert (
            members["pagination"]["total"] == len(members["items"]) == self.model.count(list_name)
        )

    def record_own_action(self, list_name: str, person: str, *kinds: str) -> None:
        self.lifted_by = (self.ids[list_name], self.people[person].address)
        self.lifted_kinds = set(kinds)

    def get_owner(self, list_name: str, which: str) -> tuple[int, str]:
        number = self.model.lists[list_name].owner ^ (which == "other")
        return number, self.owners[number].key

    def get_user_id(self, person: str) -> int:
        """Return the person's user id, or an unused id if the person has no account."""
        return self.people[person].user_id or 1

    def draw_pair(self, data: st.DataObject) -> tuple[str, str]:
        """Choose a random list and a random person, who usually has a record on this list."""
        everybody = st.tuples(LIST_NAMES, PERSON_NAMES)
        if not self.model.records:
            return data.draw(everybody)
        members = st.sampled_from(sorted(self.model.records))
        return data.draw(st.one_of(members, members, members, everybody))

    def find_record(self, observed: Observed, pair: tuple[str, str]) -> Subscription | None:
        list_name, person = pair
        return observed.records.get((self.ids[list_name], self.people[person].user_id or 0))

    def list_pending_pairs(self) -> list[tuple[str, str]]:
        return [pair for pair, each in self.model.records.items() if each.status == PENDING]

    def load_user_id(self, person: Person) -> None:
        if person.user_id is None:
            rows = self.acting.stack.query("SELECT id FROM users WHERE email = %s", person.address)
            person.user_id = next((int(str(user_id)) for (user_id,) in rows), None)

    def collect_people(self) -> People:
        return People(
            addresses=[each.address for each in self.people.values()],
            living={each.user_id: each.address for each in self.people.values() if each.user_id},
        )

    def observe_state(self) -> Observed:
        return observe(self.acting.resources, list(self.ids.values()), self.collect_people())


@pytest.mark.tier("fast", "properties")
@pytest.mark.slow
def test_no_sequence_of_actions_overrides_a_persons_opt_out(acting: ListActions) -> None:
    Subscriptions.acting = acting
    Subscriptions.owners = [acting.stack.create_owner(), acting.stack.create_owner()]
    run_state_machine_as_test(
        Subscriptions,
        settings=settings(
            max_examples=sized(10, 1000, few=2),
            stateful_step_count=sized(45, 60, few=20),
            database=None,
            # In a short run, there is no time to shrink a failing sequence of actions.
            phases=[Phase.generate, Phase.shrink] if FULL else [Phase.generate],
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
