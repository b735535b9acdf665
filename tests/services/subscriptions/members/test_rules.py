"""Rules that random sequences seldom come by, each by the shortest way there."""

from tests.services.subscriptions.members.acting import Acting, Person
from tests.stack import Owner


def stands(acting: Acting, list_id: int, person: Person) -> tuple[object, ...]:
    [found] = acting.stack.query(
        "SELECT status, email_enabled FROM subscriptions JOIN users ON users.id = user_id"
        " WHERE list_id = %s AND users.email = %s",
        list_id,
        person.address,
    )
    return found


def test_who_left_and_was_moved_back_is_on_the_list_again_after_undoing(
    acting: Acting, lists: list[int], owner: Owner, person: Person
) -> None:
    here, there = lists
    assert person.user_id is not None
    acting.ask(here, person.address)
    acting.transfer(here, there, person.user_id, owner.key)
    acting.leave(there, key=person.key)
    acting.transfer(there, here, person.user_id, owner.key)
    assert stands(acting, here, person) == ("unsubscribed", True)
    acting.undo_leave(here, person.user_id)
    assert stands(acting, here, person) == ("active", True)


def test_a_no_repeated_by_the_next_person_of_the_address_is_theirs(
    acting: Acting, lists: list[int], person: Person
) -> None:
    acting.leave(lists[0], key=person.key)
    acting.erase(person.address)
    acting.ask(lists[0], person.address)
    [(again,)] = acting.stack.query("SELECT id FROM users WHERE email = %s", person.address)
    acting.leave(lists[0], user_id=int(str(again)))
    noes = acting.stack.query("SELECT user_id, kind FROM opt_outs WHERE list_id = %s", lists[0])
    assert noes == [(again, "list")]
