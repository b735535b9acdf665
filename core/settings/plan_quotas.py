"""What a plan can bound, and how an operator writes the bounds: ``members=1000,lists=5``."""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated

from pydantic import BeforeValidator
from pydantic_settings import NoDecode


class PlanQuota(StrEnum):
    """What ``services.access.quotas`` counts of each owner."""

    MEMBERS = "members"
    LISTS = "lists"
    STORAGE_MB = "storage_mb"
    KEYS = "keys"
    UNFINISHED_JOBS = "unfinished_jobs"
    COMPOSER_PER_DAY = "composer_per_day"


DEFAULT_QUOTA_FREE = (
    "members=1000,lists=5,storage_mb=500,keys=10,unfinished_jobs=3,composer_per_day=50"
)
DEFAULT_QUOTA_PAID = "members=10000000,lists=1000,storage_mb=100000,keys=100,unfinished_jobs=10"

_NUMBER = re.compile(r"[0-9]{1,12}\Z")


def parse_quotas(value: object) -> object:
    """The limits by their quotas; raises a ``ValueError`` that names the wrong entry."""
    if not isinstance(value, str):
        return value
    limits: dict[PlanQuota, int] = {}
    for entry in filter(None, map(str.strip, value.split(","))):
        name, _, number = entry.partition("=")
        if name not in [*PlanQuota]:
            raise ValueError(f"{entry!r} names no quota; those are {', '.join(PlanQuota)}")
        if not _NUMBER.match(number):
            raise ValueError(f"{entry!r} is not written {name}=number, as {name}=10")
        if PlanQuota(name) in limits:
            raise ValueError(f"{name} is given twice")
        limits[PlanQuota(name)] = int(number)
    return limits


# The type of settings. What is not named has no limit.
Quotas = Annotated[Mapping[PlanQuota, int], NoDecode, BeforeValidator(parse_quotas)]
