"""Tests that each fault fires its alert, and that the alert clears after the end of the fault.

With `PRESSROOM_SIZE=full`, all faults are tested, otherwise only two of them.
"""

import pytest

from tests.support.alerts.trouble import calling_repeatedly
from tests.support.alerts.troubles import TROUBLES
from tests.support.alerts.watched_site import Site
from tests.support.alerts.watching import shorten_rule_times
from tests.support.observability.alert_rules import ALERTS, alerts
from tests.support.sizes import FULL

SHORT = ("Postgres away", "mail server refuses")


@pytest.mark.slow
@pytest.mark.parametrize("name", TROUBLES if FULL else SHORT)
def test_fault_fires_its_alert_and_the_alert_clears_afterwards(
    watched_stack: Site, name: str
) -> None:
    trouble = TROUBLES[name]
    watched_stack.watch.await_silence(trouble.alert, trouble.labels)
    with calling_repeatedly(watched_stack, trouble.calls, trouble.callers):
        with trouble.begin(watched_stack):
            watched_stack.watch.await_alert(trouble.alert, trouble.labels)
        watched_stack.watch.await_silence(trouble.alert, trouble.labels)


def test_every_alert_is_covered_by_a_fault() -> None:
    assert {each.alert for each in TROUBLES.values()} == alerts().keys()


def test_shortened_alert_rule_uses_the_same_metrics_in_less_time() -> None:
    rules = ALERTS.read_text()
    changed = [
        (before, after)
        for before, after in zip(
            rules.splitlines(), shorten_rule_times(rules).splitlines(), strict=True
        )
        if before != after
    ]
    assert changed
    for before, after in changed:
        names = [word for word in before.split() if "pressroom_" in word and "[" not in word]
        assert "for:" in before or "[" in before or all(name in after for name in names)
    assert "for: 10m" not in shorten_rule_times(rules)
    assert "> 7200" not in shorten_rule_times(rules)
