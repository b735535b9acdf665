import pytest

from devstack.harness.stack import Owner, Stack
from services.privacy import ip_addresses
from tests.support.lists.acting import ListActions
from tests.support.stack.maintenance import run_maintenance


def test_folding_of_subscriber_count_deltas_keeps_the_count_and_leaves_no_deltas(
    stack: Stack, acting: ListActions, owner: Owner
) -> None:
    list_id = acting.new_list(owner, confirm_required=False, challenge=False)
    # Insert more rows into ``subscriber_deltas`` than fit into two batches. The rows together
    # increase the list's number of members by 1.
    stack.query(
        "INSERT INTO subscriber_deltas (list_id, active)"
        " SELECT %s, CASE WHEN n %% 2 = 0 THEN -1 ELSE 1 END FROM generate_series(1, 20001) AS n",
        list_id,
    )
    run_maintenance(stack, "maintenance.fold_counts")
    query = "SELECT 1 FROM subscriber_deltas WHERE list_id = %s LIMIT 1"
    assert not stack.query(query, list_id)
    rows = stack.query("SELECT active FROM subscriber_counts WHERE list_id = %s", list_id)
    assert rows == [(1,)]
    with stack.client(owner.key) as client:
        assert client.get(f"/lists/{list_id}").json()["data"]["subscriber_count"] == 1


def test_ip_addresses_of_member_events_are_shortened_after_90_days(
    stack: Stack, acting: ListActions, owner: Owner
) -> None:
    list_id = acting.new_list(owner, confirm_required=False, challenge=False)
    shortened_by_ip = {
        "192.0.2.77": "192.0.2.0/24",
        "2001:db8:1:2:3:4:5:6": "2001:db8:1:2::/64",
        "::ffff:192.0.2.7": "::/64",
        "not an address": None,
    }
    # Make the maintenance task skip the subscription events that other tests have stored.
    stack.query(
        "UPDATE maintenance SET bookmark = (SELECT max(id) FROM subscription_events)"
        " WHERE name = 'maintenance.shorten_ips'"
    )
    # Insert the oldest events first, so that the ids increase with time.
    for age in (91, 89):
        for ip in shortened_by_ip:
            stack.query(
                "INSERT INTO subscription_events (list_id, user_id, action, actor, via, ip,"
                " created_at) VALUES (%s, %s, 'requested', 'stranger', 'challenge', %s,"
                " now() - make_interval(days => %s))",
                *(list_id, owner.user_id, ip, age),
            )
    for _ in range(2):
        run_maintenance(stack, "maintenance.shorten_ips")
        query = "SELECT ip FROM subscription_events WHERE user_id = %s ORDER BY id"
        ips = [ip for (ip,) in stack.query(query, owner.user_id)]
        assert ips == [*shortened_by_ip.values(), *shortened_by_ip]


def test_ip_addresses_of_consent_are_shortened_after_90_days(
    stack: Stack, acting: ListActions, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    list_id = acting.new_list(owner, confirm_required=False, challenge=False)
    shortened_by_ip: dict[str | None, str | None] = {
        "192.0.2.77": "192.0.2.0/24",
        "2001:db8:1:2:3:4:5:6": "2001:db8:1::/48",
        "192.0.2.0/24": "192.0.2.0/24",
        "not an address": None,
        None: None,
    }
    for age in (91, 89):
        for number, ip in enumerate(shortened_by_ip):
            moment = "now() - make_interval(days => %s)"
            stack.query(
                "INSERT INTO consent_entries (list_id, user_id, how, ip, occurred_at)"
                f" VALUES (%s, %s, 'form', %s, {moment})",
                *(list_id, owner.user_id, ip, age),
            )
            stack.query(
                "INSERT INTO consent_claims (import_id, subscription_id, how, claimed_by, ip,"
                f" occurred_at) VALUES (%s, %s, 'form', 'file', %s, {moment})",
                *(owner.user_id, number - 100 * age, ip, age),
            )
    # Process two rows per batch, so that the IP addresses need several batches.
    monkeypatch.setattr(ip_addresses, "_MAX_BATCH_ROWS", 2)
    old_and_young = [(ip,) for ip in (*shortened_by_ip.values(), *shortened_by_ip)]
    for _ in range(2):
        ip_addresses.shorten_ip_addresses(stack.resources)
        entry_query = "SELECT ip FROM consent_entries WHERE user_id = %s ORDER BY id"
        assert stack.query(entry_query, owner.user_id) == old_and_young
        claim_query = "SELECT ip FROM consent_claims WHERE import_id = %s ORDER BY subscription_id"
        assert stack.query(claim_query, owner.user_id) == old_and_young
