"""Parts of the types of settings: how what an operator wrote is read."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from ipaddress import IPv4Address
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr
from pydantic_settings import NoDecode

from core.money import is_storable, minor_digits


def _split(value: object) -> object:
    """The parts of a text between its commas, without the spaces around them."""
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return value


COMMA_SEPARATED = BeforeValidator(_split)


def _lines(value: object) -> object:
    """The lines of the file that an absolute path names, without comments and empty ones."""
    if not isinstance(value, str) or not value.startswith("/"):
        return value
    try:
        text = Path(value).read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(f"the file {value} can't be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"the file {value} is no UTF-8 text") from None
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return tuple(line for line in lines if line)


# Before ``COMMA_SEPARATED``, and so after it among the validators.
OR_LINES_OF_A_FILE = BeforeValidator(_lines)

_DENIED = re.compile(r"(?:[^\s@,*]+@|\*\.)?[^\s@,*]+\Z")


def _denied(entries: tuple[str, ...]) -> tuple[str, ...]:
    for number, entry in enumerate(entries, start=1):
        if not _DENIED.match(entry):
            raise ValueError(f"entry {number} is neither an address nor a domain")
    return entries


ADDRESSES_AND_DOMAINS = AfterValidator(_denied)


# Capitals and underscores are of buckets that were made long ago.
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,61}[A-Za-z0-9]\Z")
_BUCKET_HAS_NOT = re.compile(r"\.\.|\.-|-\.|-s3alias\Z|--ol-s3\Z")


def require_bucket_name(name: str) -> str:
    """The name, if S3 lets a bucket have it. Its client refuses others only at their first use."""
    if not _BUCKET.match(name):
        raise ValueError(
            "a bucket's name has 3 to 63 characters: letters, digits, dots, hyphens and "
            "underscores, and begins and ends with a letter or digit"
        )
    if _BUCKET_HAS_NOT.search(name):
        raise ValueError(
            "a bucket's name has no two dots together and no dot beside a hyphen, and ends "
            "neither with -s3alias nor with --ol-s3"
        )
    try:
        IPv4Address(name)
    except ValueError:
        return name
    raise ValueError("a bucket's name is no IP address")


BUCKET_NAME = AfterValidator(require_bucket_name)


def readable_by(parse: Callable[[str], object]) -> AfterValidator:
    """Keeps a setting as it was written, once it could be parsed."""

    def check(value: Any) -> Any:
        if value is not None:
            parse(value.get_secret_value() if isinstance(value, SecretStr) else value)
        return value

    return AfterValidator(check)


# Rate limits: ``10/minute``, ``5 per 2 seconds``, several with ``;`` between. It is the notation of
# ``limits``, the library that counts, which few commands load, while all read the settings.
_AMOUNT = r"[0-9]+"
_MULTIPLE = r"[1-9][0-9]*"
_UNIT = r"(?:second|minute|hour|day|month|year)s?"
_LIMIT = rf"\s*{_AMOUNT}\s*(?:/|per)\s*(?:{_MULTIPLE}\s*)?{_UNIT}\s*"
_LIMITS = re.compile(rf"{_LIMIT}(?:[,;|]{_LIMIT})*\Z", re.IGNORECASE)


def check_rate_limits(value: str) -> str:
    """Return the limits as they were written, empty for none; raises ``ValueError``."""
    if value.strip() and not _LIMITS.match(value):
        raise ValueError("must be like 600/minute or 10/second;200/hour, or empty for no limit")
    return value.strip()


RateLimits = Annotated[str, AfterValidator(check_rate_limits)]


# Each is code:units for one US dollar:smallest order. An operator keeps the rates current.
DEFAULT_CURRENCIES = "USD:1:0.50,EUR:0.92:0.50,GBP:0.79:0.50,JPY:150:100"


@dataclass(frozen=True)
class Currency:
    """``per_usd`` units are worth one US dollar; ``minimum`` is the smallest order, in units."""

    code: str
    per_usd: Decimal
    minimum: Decimal

    @property
    def digits(self) -> int:
        return minor_digits(self.code)


def parse_currencies(text: str) -> tuple[Currency, ...]:
    """Read ``CODE:rate:minimum,…``; raises a ``ValueError`` that names the wrong entry."""
    currencies = tuple(_currency(entry.strip()) for entry in text.split(",") if entry.strip())
    codes = {currency.code for currency in currencies}
    if not codes or len(codes) != len(currencies):
        raise ValueError("needs at least one currency, and each once")
    return currencies


def _currency(entry: str) -> Currency:
    code, *texts = entry.split(":")
    if len(texts) != len(("rate", "minimum")):
        raise ValueError(f"{entry!r} is not written CODE:units per USD:minimum, as EUR:0.92:0.50")
    digits = minor_digits(code)
    numbers = []
    for text in texts:
        try:
            number = Decimal(text)
        except InvalidOperation:
            raise ValueError(f"{entry!r}: {text!r} is not a number") from None
        if not is_storable(number) or number <= 0:
            raise ValueError(f"{entry!r}: {text} is not above 0 with at most four decimals")
        numbers.append(number)
    rate, minimum = numbers
    if minimum != round(minimum, digits):
        raise ValueError(f"{entry!r}: the minimum has more decimals than {code}")
    return Currency(code, rate, minimum)


# Types of settings.
CreditsPerUsd = Annotated[Decimal, Field(gt=0, max_digits=15, decimal_places=4)]
ComposerPrice = Annotated[Decimal | None, Field(gt=0, max_digits=15, decimal_places=4)]
Currencies = Annotated[tuple[Currency, ...], NoDecode, BeforeValidator(parse_currencies)]


class PlanQuota(StrEnum):
    """A quota of a plan, which bounds what one owner has."""

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

K = TypeVar("K", bound=StrEnum)


def _numbers(text: str, kind: type[K], digits: int, *, unknown: str, form: str) -> dict[K, int]:
    """Read ``name=number,…``; raises a ``ValueError`` that names the wrong entry."""
    numbers: dict[K, int] = {}
    for entry in filter(None, map(str.strip, text.split(","))):
        name, _, number = entry.partition("=")
        if name not in [*kind]:
            raise ValueError(f"{entry!r} names {unknown} {', '.join(kind)}")
        if not (number.isascii() and number.isdigit() and len(number) <= digits):
            raise ValueError(f"{entry!r} is not written {form.format(name=name)}")
        if kind(name) in numbers:
            raise ValueError(f"{name} is given twice")
        numbers[kind(name)] = int(number)
    return numbers


def parse_quotas(value: object) -> object:
    """The limits by their quotas; raises a ``ValueError`` that names the wrong entry."""
    if not isinstance(value, str):
        return value
    form = "{name}=number, as {name}=10"
    return _numbers(value, PlanQuota, 12, unknown="no quota; those are", form=form)


# The type of settings. A quota that is not named has no limit.
Quotas = Annotated[Mapping[PlanQuota, int], NoDecode, BeforeValidator(parse_quotas)]


class Retained(StrEnum):
    """The rows that an operator may keep for longer or shorter."""

    JOBS = "jobs"
    SUBSCRIPTION_EVENTS = "subscription_events"
    IP_ADDRESSES = "ip_addresses"
    EVENTS = "events"
    IMPORT_CHANGES = "import_changes"
    IMPORTS = "imports"
    EXPORTS = "exports"
    LIST_REPORTS = "list_reports"
    STRANGERS = "strangers"


# The product's promises need these.
MIN_DAYS: Mapping[Retained, int] = {
    Retained.JOBS: 7,  # a job that failed can be retried, and links to files are renewed from it
    Retained.SUBSCRIPTION_EVENTS: 365,  # the database holds us to it
    Retained.IP_ADDRESSES: 1,
    Retained.EVENTS: 365,  # the database holds us to it
    Retained.IMPORT_CHANGES: 90,  # the undo of an import
    Retained.IMPORTS: 90,
    Retained.EXPORTS: 7,  # the file
    Retained.LIST_REPORTS: 7,  # the operator sees those of a week
    Retained.STRANGERS: 7,  # the mailed link that confirms
}
DEFAULT_RETENTION = (
    "jobs=30,subscription_events=1095,ip_addresses=90,events=365,import_changes=90,imports=730,"
    "exports=365,list_reports=365,strangers=30"
)


def parse_retention(value: object) -> object:
    """The days by their names; what is not named is kept for as long as by default.

    Raises a ``ValueError`` that names the wrong entry.
    """
    if not isinstance(value, str):
        return value
    return _days(DEFAULT_RETENTION) | _days(value)


def _days(text: str) -> dict[Retained, int]:
    form = "{name}=days, as {name}=400"
    days = _numbers(text, Retained, 5, unknown="nothing that is kept; see", form=form)
    for name, number in days.items():
        if number < MIN_DAYS[name]:
            raise ValueError(
                f"'{name}={number}': {name} is kept for {MIN_DAYS[name]} days at least"
            )
    return days


# The type of the setting.
RetentionDays = Annotated[Mapping[Retained, int], NoDecode, BeforeValidator(parse_retention)]
