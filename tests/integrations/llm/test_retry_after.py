from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from integrations.http_client import retry_after


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("0", 0.0), ("1", 1.0), (" 2.5 ", 2.5), ("120", 120.0), ("99999", 3600.0)],
)
def test_seconds_are_read_up_to_an_hour(header: str, seconds: float) -> None:
    assert retry_after(header) == seconds


@pytest.mark.parametrize(
    "header", [None, "", "soon", "-1", "nan", "inf", "1e999", "0x10", "Fri, 99 Nov 2026 00:00:00"]
)
def test_what_is_neither_seconds_nor_a_date_counts_as_nothing(header: str | None) -> None:
    assert retry_after(header) is None


def test_a_date_is_seconds_from_now() -> None:
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True)
    found = retry_after(soon)
    assert found is not None
    assert 30.0 < found <= 60.0


def test_a_date_that_has_passed_is_now() -> None:
    assert retry_after("Wed, 21 Oct 2015 07:28:00 GMT") == 0.0
