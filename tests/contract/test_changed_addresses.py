"""Tests of accounts that change to an address that mailing lists already know."""

from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest

from devstack.harness.polling import eventually
from devstack.harness.stack import Stack
from tests.support.credits.credits import grant
from tests.support.http.replies import data
from tests.support.imports.bulk import add, build_address_file, import_members_file, nonzero_counts
from tests.support.lists.subscribers import (
    fetch_members,
    find_member,
    new_list,
    read_subscriber_count,
    require_member,
    trace_for,
)
from tests.support.people.changed_addresses import (
    CONFIRM_SUBJECT,
    MOVED_SUBJECT,
    add_person,
    change_own_address,
    export_roster,
    join,
    leave,
)
from tests.support.people.visiting import (
    PASSWORD,
    Visitor,
    new_account,
    new_address,
    new_visitor,
    read_hidden_fields,
    user_id_of,
)


@pytest.fixture
def recorded_address(client: httpx2.Client, list_id: int) -> str:
    """The e-mail address of a person whom the list's owner has added to the list."""
    email = new_address()
    add_person(client, list_id, email, name="Known")
    return email


def request_confirmation_link(person: Visitor, email: str) -> str:
    """Request a change to a new e-mail address, and return the mailed confirmation link."""
    person.fill_in("/account/email", email=email, current=PASSWORD)
    return person.mailed_path(email, CONFIRM_SUBJECT)


def get_address(person: Visitor) -> str:
    return str(data(person.get("/users/me"))["email"])


def opt_out(client: httpx2.Client, stack: Stack, list_id: int, user_id: int) -> None:
    params = {"trace_id": trace_for(stack, list_id, user_id)}
    assert data(client.request("DELETE", f"/subscriptions/{list_id}", params=params)) == 1


def test_address_change_erases_the_record_of_the_new_address_and_keeps_its_opt_outs(
    logged_in_visitor: Visitor, email: str, client: httpx2.Client, delivery_client: httpx2.Client
) -> None:
    new_email = new_address()
    active_list_id, left_list_id, common_list_id = (new_list(client)["id"] for _ in range(3))
    for each in (active_list_id, left_list_id, common_list_id):
        record_id = add_person(client, each, new_email)
    join(logged_in_visitor, common_list_id)
    for each in (left_list_id, common_list_id):
        opt_out(client, logged_in_visitor.stack, each, record_id)
    link = request_confirmation_link(logged_in_visitor, new_email)
    assert "erases this data" in logged_in_visitor.get(link).text
    assert logged_in_visitor.fill_in(link).headers["location"].endswith("/account")
    assert get_address(logged_in_visitor) == new_email
    user_id = user_id_of(logged_in_visitor.stack, new_email)
    assert user_id != record_id
    assert [
        export_roster(delivery_client, each)
        for each in (active_list_id, left_list_id, common_list_id)
    ] == [[], [], []]
    erasure_finished = "SELECT finished_at IS NOT NULL FROM erasures WHERE user_id = %s"
    eventually(
        lambda: logged_in_visitor.stack.query(erasure_finished, record_id) == [(True,)],
        what="the erasure",
    )
    assert (
        logged_in_visitor.stack.query("SELECT 1 FROM subscriptions WHERE email = %s", new_email)
        == []
    )
    eventually(
        lambda: read_subscriber_count(client, common_list_id) == 0,
        what="the change of the account's own record",
    )
    # The owner can re-add the person by neither the old nor the new address.
    for each in (left_list_id, common_list_id):
        for address in (email, new_email):
            assert data(add(client, each, address)) == 0
    # Only the person who opted out can undo the opt-out.
    join(logged_in_visitor, common_list_id)
    assert export_roster(delivery_client, common_list_id) == [new_email]


@pytest.mark.parametrize(("kind", "action"), [("bounces", "bounced"), ("complaints", "complained")])
def test_address_change_takes_over_the_cause_of_an_imported_opt_out(
    *,
    logged_in_visitor: Visitor,
    client: httpx2.Client,
    recorded_address: str,
    list_id: int,
    kind: str,
    action: str,
) -> None:
    import_members_file(client, list_id, build_address_file(recorded_address), kind=kind)
    join(logged_in_visitor, list_id)
    link = request_confirmation_link(logged_in_visitor, recorded_address)
    assert logged_in_visitor.fill_in(link).headers["location"].endswith("/account")
    user_id = user_id_of(logged_in_visitor.stack, recorded_address)
    history_path = f"/lists/{list_id}/members/{user_id}/history"
    eventually(lambda: read_subscriber_count(client, list_id) == 0, what="the opt-out")
    entry = data(client.get(history_path))["items"][0]
    assert (entry["action"], entry["actor"], entry["left_reason"]) == (action, "import", action)


def test_address_change_erases_no_record_that_its_page_did_not_mention(
    logged_in_visitor: Visitor, email: str, client: httpx2.Client, list_id: int
) -> None:
    new_email = new_address()
    link = request_confirmation_link(logged_in_visitor, new_email)
    form = read_hidden_fields(logged_in_visitor.get(link))
    assert "erase" not in form
    add_person(client, list_id, new_email)
    reply = logged_in_visitor.client.post(link.partition("?")[0], data=form)
    assert (reply.status_code, get_address(logged_in_visitor)) == (303, email)
    assert "erases this data" in logged_in_visitor.get(reply.headers["location"]).text
    assert require_member(client, list_id, new_email)
    logged_in_visitor.fill_in(link)
    assert get_address(logged_in_visitor) == new_email


def test_address_change_request_does_not_reveal_whether_an_address_is_known(
    logged_in_visitor: Visitor, recorded_address: str
) -> None:
    distinct_replies = set()
    distinct_mails = set()
    for each in (new_address(), recorded_address, new_account(logged_in_visitor.stack)):
        reply = logged_in_visitor.fill_in("/account/email", email=each, current=PASSWORD)
        distinct_replies.add((reply.status_code, reply.headers["location"], reply.text))
        # Every new address receives the same mail, whether or not it is known.
        distinct_mails.add(logged_in_visitor.mailed(each, CONFIRM_SUBJECT).partition("?token=")[0])
    assert (len(distinct_replies), len(distinct_mails)) == (1, 1)
    # The link reveals nothing to anyone except the person who requested it.
    link = request_confirmation_link(logged_in_visitor, recorded_address)
    with new_visitor(logged_in_visitor.stack) as stranger:
        assert stranger.get(link).status_code == 303
        stranger.log_in(new_account(logged_in_visitor.stack))
        assert stranger.get(link).status_code == 403
        origin = {"Origin": logged_in_visitor.stack.api_url}
        assert stranger.client.post(link, headers=origin).status_code == 403


def test_address_change_to_an_address_with_an_account_is_rejected(
    logged_in_visitor: Visitor, email: str, recorded_address: str
) -> None:
    # Someone who can't log in is still an account holder if they own credits.
    grant(logged_in_visitor.stack, user_id_of(logged_in_visitor.stack, recorded_address), "5")
    for each in (new_account(logged_in_visitor.stack), recorded_address):
        reply = logged_in_visitor.get(request_confirmation_link(logged_in_visitor, each))
        assert reply.status_code == 409
        assert "This address is already in use" in reply.text
    assert get_address(logged_in_visitor) == email


def test_address_change_keeps_a_record_that_became_an_account_before_confirmation(
    logged_in_visitor: Visitor,
    email: str,
    recorded_address: str,
    client: httpx2.Client,
    list_id: int,
) -> None:
    link = request_confirmation_link(logged_in_visitor, recorded_address)
    form = read_hidden_fields(logged_in_visitor.get(link))
    with new_visitor(logged_in_visitor.stack) as visitor:
        visitor.fill_in("/register", email=recorded_address)
        registration_path = visitor.mailed_path(recorded_address, "Finish creating your account")
        assert visitor.fill_in(registration_path, name="New", password=PASSWORD).status_code == 303
    reply = logged_in_visitor.client.post(link.partition("?")[0], data=form)
    assert (reply.status_code, get_address(logged_in_visitor)) == (409, email)
    assert require_member(client, list_id, recorded_address)


def test_only_one_of_two_concurrent_address_change_confirmations_succeeds(
    logged_in_visitor: Visitor, recorded_address: str
) -> None:
    record_id = user_id_of(logged_in_visitor.stack, recorded_address)
    link = request_confirmation_link(logged_in_visitor, recorded_address)
    form = read_hidden_fields(logged_in_visitor.get(link))
    with ThreadPoolExecutor(2) as pool:
        statuses = pool.map(
            lambda _: logged_in_visitor.client.post(link.partition("?")[0], data=form).status_code,
            range(2),
        )
        assert sorted(statuses) == [303, 403]
    assert get_address(logged_in_visitor) == recorded_address
    erasures = "SELECT count(*) FROM erasures WHERE user_id = %s"
    assert logged_in_visitor.stack.query(erasures, record_id) == [(1,)]


def test_undone_address_change_restores_no_erased_record_and_lifts_no_opt_out(
    logged_in_visitor: Visitor, email: str, client: httpx2.Client, delivery_client: httpx2.Client
) -> None:
    new_email = new_address()
    list_id = new_list(client)["id"]
    opt_out(client, logged_in_visitor.stack, list_id, add_person(client, list_id, new_email))
    user_id = user_id_of(logged_in_visitor.stack, email)
    logged_in_visitor.fill_in(request_confirmation_link(logged_in_visitor, new_email))
    assert (
        logged_in_visitor.fill_in(logged_in_visitor.mailed_path(email, MOVED_SUBJECT)).status_code
        == 303
    )
    assert user_id_of(logged_in_visitor.stack, email) == user_id
    assert logged_in_visitor.stack.query("SELECT 1 FROM users WHERE email = %s", new_email) == []
    for each in (email, new_email):
        data(add(client, list_id, each))
    assert export_roster(delivery_client, list_id) == []


@pytest.fixture
def changed_address(logged_in_visitor: Visitor, list_id: int) -> str:
    """The new e-mail address of a member who has allowed list owners to see the new address."""
    join(logged_in_visitor, list_id)
    new_email = new_address()
    logged_in_visitor.fill_in(request_confirmation_link(logged_in_visitor, new_email), show="yes")
    return new_email


def expire_undo_period(stack: Stack, email: str) -> None:
    """Expire the period in which a person can undo a change of address."""
    user_id = user_id_of(stack, email)
    mail_job = "SELECT 1 FROM account_mails WHERE user_id = %s AND kind = 'address_changed'"
    eventually(lambda: stack.query(f"{mail_job} AND sent_at IS NOT NULL", user_id), what="the mail")
    stack.query("UPDATE mailed_links SET expires_at = now() WHERE user_id = %s", user_id)
    make_due(stack, user_id)
    unfinished_job = (
        "SELECT 1 FROM jobs WHERE kind = 'account.show_address' AND subject_id = %s"
        " AND finished_at IS NULL AND run_at <= now()"
    )
    eventually(lambda: not stack.query(unfinished_job, user_id), what="the end of the job")


def make_due(stack: Stack, user_id: int) -> None:
    stack.query(
        "UPDATE jobs SET run_at = now(), send_after = now(), sends = 1"
        " WHERE kind = 'account.show_address' AND subject_id = %s AND finished_at IS NULL",
        user_id,
    )


def test_owners_see_a_changed_address_after_three_days_if_the_person_allows_that(
    logged_in_visitor: Visitor,
    email: str,
    changed_address: str,
    client: httpx2.Client,
    list_id: int,
) -> None:
    user_id = user_id_of(logged_in_visitor.stack, changed_address)
    logged_in_visitor.mailed(email, MOVED_SUBJECT)
    # The job postpones itself if it runs too early because the mail was late.
    make_due(logged_in_visitor.stack, user_id)
    postponed_job = (
        "SELECT 1 FROM jobs WHERE kind = 'account.show_address' AND subject_id = %s"
        " AND run_at BETWEEN now() + '71 h' AND now() + '73 h' AND finished_at IS NULL"
    )
    eventually(
        lambda: logged_in_visitor.stack.query(postponed_job, user_id), what="the postponed job"
    )
    assert find_member(client, list_id, changed_address) is None
    expire_undo_period(logged_in_visitor.stack, changed_address)
    assert find_member(client, list_id, email) is None
    assert require_member(client, list_id, changed_address)["user_id"] == user_id
    # An imported file with the old address still refers to the same person.
    assert nonzero_counts(
        import_members_file(client, list_id, build_address_file(email, changed_address))
    ) == {
        "received": 2,
        "already": 1,
        "duplicate": 1,
    }
    assert len(fetch_members(client, list_id)) == 1
    leave(logged_in_visitor, list_id)
    for each in (email, changed_address):
        data(add(client, list_id, each))
    assert read_subscriber_count(client, list_id) == 0


@pytest.mark.usefixtures("changed_address")
@pytest.mark.parametrize("next_step", ["undone", "replaced"])
def test_owners_never_see_a_changed_address_that_was_undone_or_replaced(
    logged_in_visitor: Visitor, email: str, client: httpx2.Client, list_id: int, next_step: str
) -> None:
    last_email = email if next_step == "undone" else new_address()
    if next_step == "undone":
        reply = logged_in_visitor.fill_in(logged_in_visitor.mailed_path(email, MOVED_SUBJECT))
        assert reply.status_code == 303
    else:
        # The person changes the address again, and doesn't allow owners to see the newest address.
        change_own_address(logged_in_visitor, last_email)
    expire_undo_period(logged_in_visitor.stack, last_email)
    [listed_member] = fetch_members(client, list_id)
    assert listed_member["email"] == email
