"""For how many days rows are kept, and how an operator writes that: ``jobs=30,exports=365``."""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated

from pydantic import BeforeValidator
from pydantic_settings import NoDecode


class Retained(StrEnum):
    """What an operator may have kept for longer or shorter."""

    JOBS = "jobs"
    SUBSCRIPTION_EVENTS = "subscription_events"
    IP_ADDRESSES = "ip_addresses"
    EVENTS = "events"
    IMPORT_CHANGES = "import_changes"
    IMPORTS = "imports"
    EXPORTS = "exports"
    LIST_REPORTS = "list_reports"
    STRANGERS = "strangers"


# What the product promises needs these. Jobs: a job that failed can be retried for a week, and
# links to files are renewed from theirs. Changes, imports: the undo of an import, for 90 days.
# Events, those of subscriptions too: a year, to which the database holds us. Exports: the file, for
# a week. Reports: the operator sees those of a week. Strangers: the mailed link that confirms, for
# a week.
MIN_DAYS: Mapping[Retained, int] = {
    Retained.JOBS: 7,
    Retained.SUBSCRIPTION_EVENTS: 365,
    Retained.IP_ADDRESSES: 1,
    Retained.EVENTS: 365,
    Retained.IMPORT_CHANGES: 90,
    Retained.IMPORTS: 90,
    Retained.EXPORTS: 7,
    Retained.LIST_REPORTS: 7,
    Retained.STRANGERS: 7,
}
DEFAULT_RETENTION = (
    "jobs=30,subscription_events=1095,ip_addresses=90,events=365,import_changes=90,imports=730,"
    "exports=365,list_reports=365,strangers=30"
)

_NUMBER = re.compile(r"[0-9]{1,5}\Z")


def parse_retention(value: object) -> object:
    """The days by their names; what is not named is kept for as long as by default.

    Raises a ``ValueError`` that names the wrong entry.
    """
    if not isinstance(value, str):
        return value
    return _parse(DEFAULT_RETENTION) | _parse(value)


def _parse(text: str) -> dict[Retained, int]:
    days: dict[Retained, int] = {}
    for entry in filter(None, map(str.strip, text.split(","))):
        name, _, number = entry.partition("=")
        if name not in [*Retained]:
            raise ValueError(f"{entry!r} names nothing that is kept; see {', '.join(Retained)}")
        if not _NUMBER.match(number):
            raise ValueError(f"{entry!r} is not written {name}=days, as {name}=400")
        if Retained(name) in days:
            raise ValueError(f"{name} is given twice")
        least = MIN_DAYS[Retained(name)]
        if int(number) < least:
            raise ValueError(f"{entry!r}: {name} is kept for {least} days at least")
        days[Retained(name)] = int(number)
    return days


# The type of the setting.
RetentionDays = Annotated[Mapping[Retained, int], NoDecode, BeforeValidator(parse_retention)]
