"""Tests of the filter operator ``anniversary``, compared with plain dates in Python."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import select, text

from core import clock
from core.ids import random_hash_id
from devstack.harness.stack import Stack
from models import FieldType, Subscription
from services.subscriptions import fields, lists
from services.subscriptions.filters import member_filter
from tests.support.lists.filter_oracle import is_anniversary
from tests.support.sizes import sized

NAMES = ("fields.born", "joined_at", "created_at")
# The numbers of days after 1 January that are near 29 February or the turn of the year.
DAYS_OF_YEAR = (0, 1, 2, 57, 58, 59, 60, 61, 363, 364)
DATES = [
    date(year, 1, 1) + timedelta(days=day)
    for year in (1972, 1999, 2000, 2020, 2024, 2025, 2026)
    for day in DAYS_OF_YEAR
]
# The first and the last microsecond of a day, and a time at noon.
TIMES = (time.min, time(12), time.max)
INSERT_MEMBERS = """
    WITH everybody AS (
        SELECT (random() * 9e15)::bigint + 1 AS id, n, born, moment
        FROM unnest(%s::text[], %s::timestamptz[]) WITH ORDINALITY AS each(born, moment, n)
    ), people AS (
        INSERT INTO users (id, email, name) SELECT id, id || '@example.net', 'Name' FROM everybody
    )
    INSERT INTO subscriptions (
        list_id, user_id, status, type, email, source, fields, created_at, joined_at
    )
    SELECT %s, id, 'active', 'free', id || '@example.com', 'import',
        jsonb_build_object(%s::text, born), moment,
        -- Every second member has no imported join date.
        CASE WHEN n %% 2 = 0 THEN moment END
    FROM everybody
"""


@dataclass(frozen=True)
class Birthdays:
    """A list whose members have one of `DATES` as birthday, join date and date of creation."""

    stack: Stack
    list_id: int
    field_id: int

    def find(self, name: str, value: int, today: date | None = None) -> list[date]:
        """Return the dates of the members with an anniversary.

        ``today``: the day on which a job began, or ``None`` for a search.
        """
        with self.stack.resources.unit_of_work() as uow:
            mailing_list = lists.get_list(uow, self.list_id)
            condition = {"field": name, "anniversary": value}
            if today is None:
                criteria = member_filter.read_filter(uow, mailing_list, condition)
            else:
                stored = member_filter.prepare_stored_filter(uow, mailing_list, condition)
                begun_at = datetime.combine(today, time.max, UTC)
                criteria = member_filter.read_for_running_job(
                    uow, mailing_list, stored, begun_at=begun_at
                )
            # The result must not depend on the time zone of the database session.
            uow.session.execute(text("SET LOCAL TIME ZONE 'Pacific/Kiritimati'"))
            query = select(Subscription.fields).where(
                Subscription.list_id == self.list_id, criteria.build_condition()
            )
            rows = uow.session.scalars(query).all()
        return sorted(date.fromisoformat(each[str(self.field_id)]) for each in rows)


@pytest.fixture(scope="module")
def birthdays(stack: Stack) -> Birthdays:
    owner = stack.create_owner()
    with stack.resources.unit_of_work() as uow:
        slug = random_hash_id()
        list_id = lists.create_list(uow, account_id=owner.account_id, title="A list", slug=slug).id
        field_id = fields.create_field(
            uow, owner.account_id, type=FieldType.DATE, key="born", label="Born", choices=[]
        ).id
    moments = [
        datetime.combine(each, TIMES[number % len(TIMES)], UTC) for number, each in enumerate(DATES)
    ]
    days = [each.isoformat() for each in DATES]
    stack.query(INSERT_MEMBERS, days, moments, list_id, str(field_id))
    return Birthdays(stack, list_id, field_id)


@pytest.mark.parametrize(
    ("born", "today", "value", "is_found"),
    [
        ("2020-01-02", "2024-01-02", 0, True),
        ("2020-01-02", "2024-01-01", 0, False),
        ("2020-01-02", "2020-01-02", 0, False),
        ("2020-01-02", "2019-01-02", 0, False),
        # The day after 31 December is in another year.
        ("2020-01-03", "2019-12-27", 7, False),
        ("2020-01-03", "2020-12-27", 7, True),
        ("2020-12-30", "2021-01-06", -7, False),
        ("2020-12-30", "2022-01-06", -7, True),
        ("2026-01-01", "2025-12-31", 1, False),
        ("2026-01-01", "2026-12-31", 1, True),
        # 29 February counts as 28 February in years without it.
        ("2020-02-29", "2023-02-28", 0, True),
        ("2020-02-29", "2023-03-01", 0, False),
        ("2020-02-29", "2023-03-01", -1, True),
        ("2020-02-29", "2023-02-21", 7, True),
        ("2020-02-29", "2100-02-28", 0, True),
        ("2020-02-29", "2024-02-28", 0, False),
        ("2020-02-29", "2024-02-29", 0, True),
        ("2020-02-29", "2024-03-01", -1, True),
        ("2020-02-29", "2024-02-21", 7, False),
        ("2020-02-29", "2024-02-22", 7, True),
        ("2020-02-29", "2020-02-29", 0, False),
        ("2020-02-29", "2021-02-28", 0, True),
        ("2020-02-28", "2024-02-28", 0, True),
        ("2020-02-28", "2024-02-29", 0, False),
        ("2025-03-01", "2028-02-29", 1, True),
        ("2025-03-01", "2028-02-29", 0, False),
        # The largest and the smallest value.
        ("2020-02-29", "2023-12-31", 60, True),
        ("2020-02-29", "2022-12-30", 60, True),
        ("2020-02-29", "2024-04-29", -60, True),
        ("2020-02-29", "2023-04-29", -60, True),
    ],
)
def test_anniversary_is_the_month_and_day_in_every_later_year(
    birthdays: Birthdays, born: str, today: str, value: int, is_found: bool
) -> None:
    for name in NAMES:
        dates = birthdays.find(name, value, date.fromisoformat(today))
        assert (date.fromisoformat(born) in dates) is is_found, name


@settings(
    max_examples=sized(60, 5_000, few=10),
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    name=st.sampled_from(NAMES),
    year=st.sampled_from((2024, 2025)) | st.integers(1971, 2101),
    # 28 February and the day after it are most likely to be wrong.
    day=st.sampled_from((58, 59)) | st.sampled_from(DAYS_OF_YEAR) | st.integers(0, 364),
    value=st.integers(-60, 60),
)
@pytest.mark.tier("fast", "properties")
def test_anniversary_finds_the_same_members_as_plain_python(
    birthdays: Birthdays, name: str, year: int, day: int, value: int
) -> None:
    target = date(year, 1, 1) + timedelta(days=day)
    expected = [each for each in DATES if is_anniversary(each, target)]
    assert birthdays.find(name, value, target - timedelta(days=value)) == expected


def test_anniversary_in_a_search_counts_from_the_current_day_in_utc(
    birthdays: Birthdays, monkeypatch: pytest.MonkeyPatch
) -> None:
    born = date(2020, 1, 2)
    for now, is_found in (
        ("2024-01-01T23:59:59.999999+00:00", False),
        ("2024-01-02T00:00:00+00:00", True),
        ("2024-01-02T23:59:59.999999+00:00", True),
        ("2024-01-03T00:00:00+00:00", False),
    ):
        monkeypatch.setattr(clock, "now", lambda now=now: datetime.fromisoformat(now))
        for name in NAMES:
            assert (born in birthdays.find(name, 0)) is is_found, (now, name)
