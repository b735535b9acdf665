"""Tests the number of expired rows that weren't purged in time, and the metric of this number."""

from datetime import timedelta

import httpx2

from devstack.harness.polling import eventually
from devstack.harness.stack import Stack
from services.privacy.expired_rows import purge_expired_rows
from services.privacy.overdue_rows import count_overdue_rows
from services.privacy.retention import RULES
from tests.support.people.aged_rows import MINUTE, TIME_PRECISIONS, AgedRows
from tests.support.stack.maintenance import resting_maintenance

COUNTED_RULES = [rule.name for rule in RULES if rule.moment is not None]
TWO_ROUNDS = timedelta(hours=2)


def count_by_rule(stack: Stack) -> dict[str, int]:
    return dict(count_overdue_rows(stack.resources))


def test_expired_rows_count_as_overdue_only_two_hours_after_their_expiry(
    retention_stack: Stack, aged_rows: AgedRows
) -> None:
    purge_expired_rows(retention_stack.resources)
    before = count_by_rule(retention_stack)
    assert set(before) == set(COUNTED_RULES)
    for name in COUNTED_RULES:
        aged_rows.make(name, past_by=TWO_ROUNDS - TIME_PRECISIONS.get(name, MINUTE))
    assert count_by_rule(retention_stack) == before
    for name in COUNTED_RULES:
        aged_rows.make(name, past_by=TWO_ROUNDS + TIME_PRECISIONS.get(name, MINUTE))
    # The count of each retention rule must increase by one, for the overdue row that was created
    # for this rule.
    increases = {
        name: count - before[name] for name, count in count_by_rule(retention_stack).items()
    }
    assert increases == dict.fromkeys(COUNTED_RULES, 1)
    purge_expired_rows(retention_stack.resources)


def test_overdue_row_count_per_table_is_capped_at_1000(retention_stack: Stack) -> None:
    retention_stack.query(
        "INSERT INTO mail_counts (digest, mails, ends_at)"
        " SELECT sha256(('many' || n)::bytea), 1, now() - interval '1 day'"
        " FROM generate_series(1, 3000) AS n"
    )
    assert count_by_rule(retention_stack)["mail_counts"] == 1_000
    purge_expired_rows(retention_stack.resources)
    assert count_by_rule(retention_stack)["mail_counts"] == 0


def test_metrics_report_overdue_rows_per_table(stack: Stack, stranger: httpx2.Client) -> None:
    token = stack.environment["PRESSROOM_METRICS_TOKEN"]

    def read_metrics() -> str:
        reply = stranger.get("/metrics", headers={"Authorization": f"Bearer {token}"})
        return reply.raise_for_status().text

    with resting_maintenance(stack):
        stack.query(
            "INSERT INTO mail_counts (digest, mails, ends_at)"
            " VALUES (sha256('overdue'), 1, now() - interval '3 hours')"
        )
        line = 'pressroom_overdue_rows{table="mail_counts"} 1.0'
        eventually(lambda: line in read_metrics(), what="the overdue row among the metrics")
        assert 'pressroom_overdue_rows{table="jobs"} 0.0' in read_metrics()
    stack.query("DELETE FROM mail_counts WHERE digest = sha256('overdue')")
