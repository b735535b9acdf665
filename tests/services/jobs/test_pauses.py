from datetime import timedelta

import pytest
from sqlalchemy import literal, select

from core.pauses import Pauses
from devstack.harness.stack import Stack
from services.jobs.pauses import build_pause

pytestmark = pytest.mark.stack

MANY = 1_000_000


@pytest.mark.parametrize(
    ("pauses", "seconds"),
    [
        (Pauses((timedelta(seconds=30),)), [30, 30, 30]),
        (Pauses.double(timedelta(seconds=1), timedelta(seconds=5)), [1, 2, 4, 5, 5]),
        (Pauses((timedelta(seconds=5), timedelta(hours=3)), jitter=0.1), [5, 10_800, 10_800]),
        (Pauses.double(timedelta(seconds=4), timedelta(seconds=8), jitter=-0.5), [4, 8, 8]),
    ],
)
def test_pauses_in_python_and_in_sql_are_equal_except_for_the_jitter(
    stack: Stack, pauses: Pauses, seconds: list[int]
) -> None:
    shortest, longest = sorted((1.0, 1 + pauses.jitter))
    with stack.resources.unit_of_work() as uow:
        for failures, expected in [*enumerate(seconds, start=1), (MANY, seconds[-1])]:
            pause_in_sql = uow.session.scalar(select(build_pause(pauses, literal(failures))))
            assert pause_in_sql is not None
            for pause in (pauses.choose(failures), pause_in_sql):
                assert expected * shortest <= pause.total_seconds() <= expected * longest


def test_jitter_changes_pauses_at_random_and_a_maximum_shortens_them(stack: Stack) -> None:
    pauses = Pauses.double(timedelta(seconds=1), timedelta(hours=1), jitter=-0.5)
    with stack.resources.unit_of_work() as uow:
        drawn = [uow.session.scalar(select(build_pause(pauses, literal(9)))) for _ in range(5)]
    assert len(set(drawn)) > 1
    assert len({pauses.choose(9) for _ in range(5)}) > 1
    for failures in (3, 9):
        assert 1 <= pauses.choose(failures, timedelta(seconds=2)).total_seconds() <= 2
