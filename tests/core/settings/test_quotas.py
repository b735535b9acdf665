"""What an operator may write for the quotas of a plan."""

import pytest

from core.settings.plan_quotas import (
    DEFAULT_QUOTA_FREE,
    DEFAULT_QUOTA_PAID,
    PlanQuota,
    parse_quotas,
)


def test_quotas_are_read_by_their_names() -> None:
    assert parse_quotas(" lists=5 , members=0,") == {PlanQuota.LISTS: 5, PlanQuota.MEMBERS: 0}
    assert parse_quotas("") == {}


def test_the_defaults_are_those_of_the_contract() -> None:
    free = {"members": 1000, "lists": 5, "storage_mb": 500, "keys": 10, "unfinished_jobs": 3}
    paid = {"members": 10_000_000, "lists": 1000, "storage_mb": 100_000, "keys": 100}
    assert parse_quotas(DEFAULT_QUOTA_FREE) == free | {"composer_per_day": 50}
    assert parse_quotas(DEFAULT_QUOTA_PAID) == paid | {"unfinished_jobs": 10}


@pytest.mark.parametrize(
    "written",
    [
        "list=5",
        "lists",
        "lists=",
        "lists=-1",
        "lists=1e3",
        "lists=1.5",
        "lists=5,lists=6",
        "lists=\u0665",
    ],
)
def test_what_is_no_quota_is_named(written: str) -> None:
    with pytest.raises(ValueError, match=r"lists?"):
        parse_quotas(written)
