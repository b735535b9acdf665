"""Random sequences of everything that people, owners, strangers and the operator can do to
subscriptions, through the public interface, against the rules in plain words (`model`)."""

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
from services.subscriptions import folding
from tests.support.lists.acting import Acting, Person
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
    require_nothing_lifted,
    require_opt_outs_hold,
    require_unbroken_history,
)
from tests.support.lists.tallying import Tally
from tests.support.sizes import FULL, sized

LISTS = st.sampled_from(["challenged", "confirming", "foreign"])
# An owner moves people between lists of theirs far more often than they try another's.
TARGETS = st.sampled_from(["challenged", "confirming", "confirming", "challenged", "foreign"])
PEOPLE = st.sampled_from(["ada", "bea", "unknown"])
OWNERS = st.sampled_from(["of", "of", "of", "other"])
EXPIRIES = st.sampled_from([None, "2040-01-01T00:00:00.000000Z", "2041-01-01T00:00:00.000000Z"])


class Subscriptions(RuleBasedStateMachine):
    """Two owners, three lists, three people: two can log in, one is only an address at first."""

    acting: ClassVar[Acting]
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
                self.owners[of.owner], confirm_required=of.confirm_required, challenge=of.challenge
            )
            for name, of in self.model.lists.items()
        }
        self.people = {
            "ada": self.acting.new_person(with_login=True),
            "bea": self.acting.new_person(with_login=True),
            "unknown": self.acting.new_person(with_login=False),
        }
        # By import: whom it made active, what they were before, and their record right after it.
        self.imports: dict[
            int, dict[tuple[str, str], tuple[Record | None, Subscription | None]]
        ] = {}
        self.steps = 0
        self.seen = self.look()
        self.tally = Tally()
        # Whose noes the step may have lifted: by the person's own action.
        self.lifted_by: tuple[int, str] | None = None
        self.lifted: set[str] = set()

    @rule(of=LISTS, person=PEOPLE)
    def stranger_asks(self, of: str, person: str) -> None:
        whom = self.people[person]
        challenge = self.model.lists[of].challenge
        reply = self.acting.ask(self.ids[of], whom.address, challenge=challenge)
        assert reply == self.model.stranger_asks(of, person)
        self.find(whom)

    @rule(of=LISTS, person=PEOPLE)
    def joins_by_login(self, of: str, person: str) -> None:
        whom = self.people[person]
        reply = self.acting.reply(
            "POST", f"/subscriptions/{self.ids[of]}/no-challenge", key=whom.key
        )
        if whom.key is None:
            assert reply == (401, "auth.credentials_missing")
            return
        expected = self.model.join(of, person)
        assert reply == expected
        if expected == (200, 1):
            self.own_action(of, person, LIST, EMAIL)

    @rule(data=st.data(), by_login=st.booleans())
    def leaves(self, data: st.DataObject, by_login: bool) -> None:
        of, person = self.pair(data)
        whom = self.people[person]
        if whom.user_id is None:
            return
        key = whom.key if by_login else None
        reply = self.acting.leave(self.ids[of], key=key, user_id=whom.user_id)
        assert reply == self.model.leave(of, person)

    @rule(data=st.data())
    def undoes_leaving(self, data: st.DataObject) -> None:
        of, person = self.pair(data)
        whom = self.people[person]
        if whom.user_id is None:
            return
        self.acting.undo_leave(self.ids[of], whom.user_id)
        self.model.undo_leave(of, person)
        self.own_action(of, person, LIST)

    @rule(data=st.data(), enabled=st.booleans(), by_login=st.booleans())
    def switches_mail(self, data: st.DataObject, enabled: bool, by_login: bool) -> None:
        of, person = self.pair(data)
        whom = self.people[person]
        if whom.user_id is None:
            return
        key = whom.key if by_login else None
        reply = self.acting.switch_mail(
            self.ids[of], enabled=enabled, key=key, user_id=whom.user_id
        )
        assert reply == self.model.switch_mail(of, person, enabled=enabled)
        if enabled:
            self.own_action(of, person, EMAIL)

    @rule(data=st.data())
    def switches_mail_off_at_one_click(self, data: st.DataObject) -> None:
        of, person = self.pair(data)
        whom = self.people[person]
        if whom.user_id is None:
            return
        reply = self.acting.one_click(self.ids[of], whom.user_id)
        assert reply == self.model.switch_mail(of, person, enabled=False)

    @rule(of=LISTS, person=PEOPLE, enabled=st.booleans())
    def answers_a_mail_from_before_the_erasure(self, of: str, person: str, enabled: bool) -> None:
        for user_id in self.people[person].gone:
            assert self.acting.leave(self.ids[of], user_id=user_id) == (200, 1)
            reply = self.acting.switch_mail(self.ids[of], enabled=enabled, user_id=user_id)
            assert reply == (200, 1)

    @precondition(lambda self: self.waiting())
    @rule(data=st.data())
    def is_mailed_a_link(self, data: st.DataObject) -> None:
        of, person = data.draw(st.sampled_from(self.waiting()))
        user_id = self.people[person].user_id
        assert user_id is not None
        secret = self.acting.mail_link(self.ids[of], user_id)
        self.model.links.append(Link(of, person, secret))

    @precondition(lambda self: self.model.links)
    @rule(data=st.data())
    def confirms(self, data: st.DataObject) -> None:
        link = data.draw(st.sampled_from(self.model.links[::-1]))
        was_used = link.is_used
        assert self.acting.confirm(link.secret) == self.model.confirm(link)
        if link.is_used != was_used:
            self.own_action(link.list, link.person, LIST, EMAIL)

    @rule(data=st.data(), owner=OWNERS)
    def owner_removes(self, data: st.DataObject, owner: str) -> None:
        of, person = self.pair(data)
        number, key = self.owner(of, owner)
        reply = self.acting.remove(self.ids[of], self.named(person), key)
        assert reply == self.model.remove(number, of, person)

    @rule(data=st.data(), owner=OWNERS, enabled=st.booleans())
    def owner_switches_mail(self, data: st.DataObject, owner: str, enabled: bool) -> None:
        of, person = self.pair(data)
        number, key = self.owner(of, owner)
        path = f"/subscriptions/{self.ids[of]}/members/{self.named(person)}/email"
        reply = self.acting.reply("PUT", path, key=key, json={"enabled": enabled})
        assert reply == self.model.owner_switches_mail(number, of, person, enabled=enabled)

    @rule(data=st.data(), to=TARGETS, back=st.booleans())
    def owner_transfers(self, data: st.DataObject, to: str, back: bool) -> None:
        source, person = self.pair(data)
        number, key = self.owner("challenged", "of")
        for here, there in [(source, to), (to, source)][: 1 + back]:
            user_id = self.named(person)
            reply = self.acting.transfer(self.ids[here], self.ids[there], user_id, key)
            assert reply == self.model.transfer(number, here, there, person)

    @rule(data=st.data(), tier=st.sampled_from(["free", "silver", "gold"]), end=EXPIRIES)
    def owner_edits(self, data: st.DataObject, tier: str, end: str | None) -> None:
        of, person = self.pair(data)
        number, key = self.owner(of, "of")
        path = f"/lists/{self.ids[of]}/members/{self.named(person)}"
        body = {"type": tier, "paid_expiry": end, "name": "Reader"}
        reply = self.acting.reply("PATCH", path, key=key, json=body)
        assert reply == self.model.edit(number, of, person, tier, end)

    @rule(of=LISTS, person=PEOPLE, owner=OWNERS, tier=st.sampled_from(["free", "silver"]))
    def owner_puts(self, of: str, person: str, owner: str, tier: str) -> None:
        whom = self.people[person]
        number, key = self.owner(of, owner)
        path = f"/lists/{self.ids[of]}/members/{whom.address}"
        reply = self.acting.reply("PUT", path, key=key, json={"type": tier})
        assert reply == self.model.put(number, of, person, tier)
        self.find(whom)

    @rule(of=LISTS, person=PEOPLE)
    def owner_acts_on_the_erased(self, of: str, person: str) -> None:
        _, key = self.owner(of, "of")
        for user_id in self.people[person].gone:
            if not self.model.lists[of].archived:
                assert self.acting.remove(self.ids[of], user_id, key) == NO_MEMBER

    @rule(
        of=LISTS,
        rows=st.lists(
            st.tuples(PEOPLE, st.sampled_from([False, False, False, True])),
            min_size=1,
            unique_by=lambda row: row[0],
        ),
    )
    def owner_imports(self, of: str, rows: list[tuple[str, bool]]) -> None:
        if self.model.lists[of].archived:
            return
        sent = [(self.people[person].address, left) for person, left in rows]
        result = self.acting.bring(self.ids[of], sent, self.owner(of, "of")[1])
        done = self.model.bring(of, rows)
        assert {name: result[name] for name in done.counts} == done.counts
        for person, _ in rows:
            self.find(self.people[person])
        seen = self.look()
        self.imports[result["import_id"]] = {
            pair: (was, self.record(seen, pair)) for pair, was in done.before.items()
        }

    @precondition(lambda self: self.imports)
    @rule(data=st.data())
    def owner_undoes_an_import(self, data: st.DataObject) -> None:
        import_id = data.draw(st.sampled_from(sorted(self.imports)))
        brought = self.imports.pop(import_id)
        seen = self.look()
        untouched = {
            pair: was
            for pair, (was, then) in brought.items()
            if (now := self.record(seen, pair)) is not None
            and then is not None
            and (now.id, now.updated_at) == (then.id, then.updated_at)
        }
        [(user_id,)] = self.acting.stack.query(
            "SELECT user_id FROM imports WHERE id = %s", import_id
        )
        key = next(owner.key for owner in self.owners if owner.user_id == user_id)
        assert self.acting.take_back(import_id, key) == (200, len(untouched))
        self.model.take_back(untouched)

    @precondition(lambda self: self.steps > 10)
    @rule(of=LISTS)
    def owner_archives(self, of: str) -> None:
        number, key = self.owner(of, "of")
        reply = self.acting.reply("DELETE", f"/lists/{self.ids[of]}", key=key)
        assert reply == self.model.archive(number, of)

    @precondition(lambda self: self.steps > 3)
    @rule(person=PEOPLE)
    def operator_erases(self, person: str) -> None:
        whom = self.people[person]
        if whom.user_id is None:
            return
        self.acting.erase(whom.address)
        self.model.erase(person)
        refused = self.acting.reply("GET", "/subscriptions", key=whom.key)
        assert refused[0] == 401
        whom.gone.append(whom.user_id)
        whom.user_id = whom.key = None

    @rule(most=st.integers(1, 5))
    def counts_are_folded(self, most: int) -> None:
        with self.acting.resources.unit_of_work() as uow:
            folding.fold_counts(uow, max_deltas=most)
            folding.fold_days(uow, max_deltas=most)

    @invariant()
    def is_as_the_rules_say(self) -> None:
        before, self.seen = self.seen, self.look()
        self.steps += 1
        require_as_modelled(self.seen, self.model, self.ids, self.people)
        require_opt_outs_hold(self.seen, self.known())
        require_counts_are_true(self.seen)
        require_unbroken_history(self.seen)
        self.tally.note(before, self.seen)
        self.tally.require_figures(self.acting.resources, self.seen)
        require_nothing_lifted(before, self.seen, self.lifted_by, self.lifted)
        self.lifted_by, self.lifted = None, set()

    def teardown(self) -> None:
        for of, rules in self.model.lists.items():
            if not rules.archived:
                self.require_shown(of, self.owner(of, "of")[1])

    def require_shown(self, of: str, key: str) -> None:
        """The owner's own pages say the same."""
        headers = {"Authorization": f"Bearer {key}"}
        path = f"/lists/{self.ids[of]}"
        shown = self.acting.client.get(path, headers=headers).json()["data"]
        members = self.acting.client.get(f"{path}/subscriptions", headers=headers).json()["data"]
        assert shown["subscriber_count"] == self.model.count(of)
        assert members["pagination"]["total"] == len(members["items"]) == self.model.count(of)

    def own_action(self, of: str, person: str, *kinds: str) -> None:
        self.lifted_by = (self.ids[of], self.people[person].address)
        self.lifted = set(kinds)

    def owner(self, of: str, which: str) -> tuple[int, str]:
        number = self.model.lists[of].owner ^ (which == "other")
        return number, self.owners[number].key

    def named(self, person: str) -> int:
        """The user's id, or one that nobody has."""
        return self.people[person].user_id or 1

    def pair(self, data: st.DataObject) -> tuple[str, str]:
        """A list and a person: most of the time one who has a record there."""
        everybody = st.tuples(LISTS, PEOPLE)
        if not self.model.records:
            return data.draw(everybody)
        members = st.sampled_from(sorted(self.model.records))
        return data.draw(st.one_of(members, members, members, everybody))

    def record(self, seen: Observed, pair: tuple[str, str]) -> Subscription | None:
        of, person = pair
        return seen.records.get((self.ids[of], self.people[person].user_id or 0))

    def waiting(self) -> list[tuple[str, str]]:
        return [pair for pair, each in self.model.records.items() if each.status == PENDING]

    def find(self, person: Person) -> None:
        if person.user_id is None:
            rows = self.acting.stack.query("SELECT id FROM users WHERE email = %s", person.address)
            person.user_id = next((int(str(user_id)) for (user_id,) in rows), None)

    def known(self) -> People:
        return People(
            addresses=[each.address for each in self.people.values()],
            living={each.user_id: each.address for each in self.people.values() if each.user_id},
        )

    def look(self) -> Observed:
        return observe(self.acting.resources, list(self.ids.values()), self.known())


@pytest.mark.tier("fast", "properties")
@pytest.mark.slow
def test_no_sequence_of_actions_overrides_a_persons_opt_out(acting: Acting) -> None:
    Subscriptions.acting = acting
    Subscriptions.owners = [acting.stack.create_owner(), acting.stack.create_owner()]
    run_state_machine_as_test(
        Subscriptions,
        settings=settings(
            max_examples=sized(10, 1000, few=2),
            stateful_step_count=sized(45, 60, few=20),
            database=None,
            # Making a failing sequence short takes more time than a short run has.
            phases=[Phase.generate, Phase.shrink] if FULL else [Phase.generate],
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
