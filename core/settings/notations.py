"""Validates and parses the values of settings."""

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

_DENIED_ENTRY = re.compile(r"(?:[^\s@,*]+@|\*\.)?[^\s@,*]+\Z")

# Allow capital letters and underscores, because the names of S3 buckets from before 2018 can
# contain them.
_BUCKET_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,61}[A-Za-z0-9]\Z")
_RESERVED_IN_BUCKET_NAME = re.compile(r"\.\.|\.-|-\.|-s3alias\Z|--ol-s3\Z")

# The format of rate limits, such as ``10/minute`` or ``5 per 2 seconds``. The value of a rate limit
# setting may contain several rate limits, separated by semicolons. The library ``limits`` defines
# the format of rate limits, but isn't imported because few commands use rate limits.
_AMOUNT = r"[0-9]+"
_MULTIPLE = r"[1-9][0-9]*"
_UNIT = r"(?:second|minute|hour|day|month|year)s?"
_RATE_LIMIT = rf"\s*{_AMOUNT}\s*(?:/|per)\s*(?:{_MULTIPLE}\s*)?{_UNIT}\s*"
_RATE_LIMITS = re.compile(rf"{_RATE_LIMIT}(?:[,;|]{_RATE_LIMIT})*\Z", re.IGNORECASE)

# The default currencies, with exchange rates and minimum order amounts. Each entry of
# ``DEFAULT_CURRENCIES`` has the format ``code:units per US dollar:minimum order amount``. Operators
# should replace the default exchange rates with current exchange rates.
DEFAULT_CURRENCIES = "USD:1:0.50,EUR:0.92:0.50,GBP:0.79:0.50,JPY:150:100"

DEFAULT_QUOTA_FREE = (
    "members=1000,lists=5,storage_mb=500,keys=10,unfinished_jobs=3,composer_per_day=50"
)
DEFAULT_QUOTA_PAID = "members=10000000,lists=1000,storage_mb=100000,keys=100,unfinished_jobs=10"
DEFAULT_RETENTION = (
    "jobs=30,subscription_events=1095,ip_addresses=90,events=365,import_changes=90,imports=730,"
    "exports=365,list_reports=365,strangers=30,requests=7,mailings=1095,mailing_marks=30,"
    "reports=7,bounces=180,seen=1100"
)

K = TypeVar("K", bound=StrEnum)


def _split(value: object) -> object:
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return value


def _read_lines(value: object) -> object:
    """Return the file's lines without comments and empty lines, or ``value`` itself if it isn't an
    absolute path.
    """
    if not isinstance(value, str) or not value.startswith("/"):
        return value
    try:
        text = Path(value).read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(f"the file {value} can't be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"the file {value} is not valid UTF-8") from None
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return tuple(line for line in lines if line)


def _require_addresses_and_domains(entries: tuple[str, ...]) -> tuple[str, ...]:
    for number, entry in enumerate(entries, start=1):
        if not _DENIED_ENTRY.match(entry):
            raise ValueError(f"entry {number} is neither an address nor a domain")
    return entries


def require_bucket_name(name: str) -> str:
    """Return the name of a bucket, or raise ``ValueError`` if S3 doesn't allow the name.

    The check reports an invalid bucket name at startup, and not at the first call to the storage.
    """
    if not _BUCKET_NAME.match(name):
        raise ValueError(
            "a bucket name must have 3 to 63 letters, digits, dots, hyphens and underscores, and "
            "start and end with a letter or digit"
        )
    if _RESERVED_IN_BUCKET_NAME.search(name):
        raise ValueError(
            "a bucket name must not contain two dots in a row or a dot next to a hyphen, and must "
            "not end with -s3alias or --ol-s3"
        )
    try:
        IPv4Address(name)
    except ValueError:
        return name
    raise ValueError("a bucket name must not be an IP address")


def parsable_by(parse: Callable[[str], object]) -> AfterValidator:
    def check(value: Any) -> Any:
        if value is not None:
            parse(value.get_secret_value() if isinstance(value, SecretStr) else value)
        return value

    return AfterValidator(check)


def matching(pattern: str, rule: str) -> AfterValidator:
    """Reject texts that the pattern doesn't match as a whole. ``rule`` begins with "must"."""

    def check(text: str) -> None:
        if not re.fullmatch(pattern, text, re.ASCII):
            raise ValueError(rule)

    return parsable_by(check)


def check_rate_limits(value: str) -> str:
    """Accept an empty value, which means that there is no rate limit."""
    if value.strip() and not _RATE_LIMITS.match(value):
        raise ValueError(
            "must have the form 600/minute or 10/second;200/hour, or be empty for no limit"
        )
    return value.strip()


@dataclass(frozen=True)
class Currency:
    """A currency in which the deployment sells credits.

    Attributes:
        per_usd: the number of currency units that one US dollar buys.
        minimum: the minimum amount of an order, in currency units.
    """

    code: str
    per_usd: Decimal
    minimum: Decimal

    @property
    def digits(self) -> int:
        return minor_digits(self.code)


def parse_currencies(text: str) -> tuple[Currency, ...]:
    """Parse currencies in the format ``CODE:rate:minimum,…``."""
    currencies = tuple(_parse_currency(entry.strip()) for entry in text.split(",") if entry.strip())
    codes = {currency.code for currency in currencies}
    if not codes or len(codes) != len(currencies):
        raise ValueError("must contain at least one currency, and each currency only once")
    return currencies


def _parse_currency(entry: str) -> Currency:
    code, *texts = entry.split(":")
    if len(texts) != len(("rate", "minimum")):
        raise ValueError(
            f"{entry!r} doesn't have the form CODE:units per USD:minimum, such as EUR:0.92:0.50"
        )
    digits = minor_digits(code)
    numbers = []
    for text in texts:
        try:
            number = Decimal(text)
        except InvalidOperation:
            raise ValueError(f"{entry!r}: {text!r} is not a number") from None
        if not is_storable(number) or number <= 0:
            raise ValueError(f"{entry!r}: {text} must be above 0, with at most four decimals")
        numbers.append(number)
    rate, minimum = numbers
    if minimum != round(minimum, digits):
        raise ValueError(f"{entry!r}: the minimum has more decimals than {code}")
    return Currency(code, rate, minimum)


class PlanQuota(StrEnum):
    """A quota of a plan, which limits the resources of one owner."""

    MEMBERS = "members"
    LISTS = "lists"
    STORAGE_MB = "storage_mb"
    KEYS = "keys"
    UNFINISHED_JOBS = "unfinished_jobs"
    COMPOSER_PER_DAY = "composer_per_day"


def _parse_numbers(
    text: str, kind: type[K], digits: int, *, unknown: str, form: str
) -> dict[K, int]:
    """Parse named numbers in the format ``name=number,…``.

    Args:
        unknown: the part of the error message between an unknown name and the allowed names.
        form: describes the format of an entry in error messages.
    """
    numbers: dict[K, int] = {}
    for entry in filter(None, map(str.strip, text.split(","))):
        name, _, number = entry.partition("=")
        if name not in [*kind]:
            raise ValueError(f"{entry!r} is {unknown} {', '.join(kind)}")
        if not (number.isascii() and number.isdigit() and len(number) <= digits):
            raise ValueError(f"{entry!r} doesn't have the form {form.format(name=name)}")
        if kind(name) in numbers:
            raise ValueError(f"{name} occurs twice")
        numbers[kind(name)] = int(number)
    return numbers


def parse_quotas(value: object) -> object:
    if not isinstance(value, str):
        return value
    form = "{name}=number, such as {name}=10"
    return _parse_numbers(value, PlanQuota, 12, unknown="an unknown quota; use one of", form=form)


class Retained(StrEnum):
    JOBS = "jobs"
    SUBSCRIPTION_EVENTS = "subscription_events"
    IP_ADDRESSES = "ip_addresses"
    EVENTS = "events"
    IMPORT_CHANGES = "import_changes"
    IMPORTS = "imports"
    EXPORTS = "exports"
    LIST_REPORTS = "list_reports"
    STRANGERS = "strangers"
    REQUESTS = "requests"
    MAILINGS = "mailings"
    MAILING_MARKS = "mailing_marks"
    REPORTS = "reports"
    BOUNCES = "bounces"
    SEEN = "seen"


# The minimum retention period of each category of rows, in days.
MIN_DAYS: Mapping[Retained, int] = {
    # Keep jobs, so that owners can retry a failed job or request a new link to a job's file.
    Retained.JOBS: 7,
    # The database refuses to delete subscription events that are less than a year old.
    Retained.SUBSCRIPTION_EVENTS: 365,
    Retained.IP_ADDRESSES: 1,
    # The database refuses to delete account events that are less than a year old.
    Retained.EVENTS: 365,
    # Keep imports and their changes as long as owners can undo an import.
    Retained.IMPORT_CHANGES: 90,
    Retained.IMPORTS: 90,
    # Keep exports, so that owners can download an exported file.
    Retained.EXPORTS: 7,
    # Keep reports about lists, because the operators' pages show the reports of the last seven
    # days.
    Retained.LIST_REPORTS: 7,
    # Keep the data of strangers as long as people can confirm their address with a mailed link.
    Retained.STRANGERS: 7,
    Retained.REQUESTS: 1,
    # Keep a mailing for 30 days, because Pressroom counts new reports about the mailing during this
    # time.
    Retained.MAILINGS: 30,
    # A row of ``mailing_marks`` records that a counter of a mailing already includes a member. Keep
    # the row for as long as the row of the mailing, so that a repeated report isn't counted again.
    Retained.MAILING_MARKS: 30,
    Retained.REPORTS: 1,
    # After bounces, an owner may turn a list's mail to a member on again only once in 30 days. Keep
    # bounces for 30 days, because the row of a bounce stores when the owner last turned the mail
    # on.
    Retained.BOUNCES: 30,
    Retained.SEEN: 1,
}


def parse_retention(value: object) -> object:
    """Parse periods in days. A category that the setting omits has its default retention period."""
    if not isinstance(value, str):
        return value
    return _parse_days(DEFAULT_RETENTION) | _parse_days(value)


def _parse_days(text: str) -> dict[Retained, int]:
    form = "{name}=days, such as {name}=400"
    days = _parse_numbers(
        text, Retained, 5, unknown="an unknown kind of rows; use one of", form=form
    )
    for name, number in days.items():
        if number < MIN_DAYS[name]:
            raise ValueError(f"'{name}={number}': the minimum for {name} is {MIN_DAYS[name]} days")
    return days


# Validators and types for settings classes.
COMMA_SEPARATED = BeforeValidator(_split)
# An annotation must list ``OR_LINES_OF_A_FILE`` after ``COMMA_SEPARATED``, because pydantic runs
# the last ``BeforeValidator`` first.
OR_LINES_OF_A_FILE = BeforeValidator(_read_lines)
ADDRESSES_AND_DOMAINS = AfterValidator(_require_addresses_and_domains)
BUCKET_NAME = AfterValidator(require_bucket_name)
RateLimits = Annotated[str, AfterValidator(check_rate_limits)]
CreditsPerUsd = Annotated[Decimal, Field(gt=0, max_digits=15, decimal_places=4)]
ComposerPrice = Annotated[Decimal | None, Field(gt=0, max_digits=15, decimal_places=4)]
Currencies = Annotated[tuple[Currency, ...], NoDecode, BeforeValidator(parse_currencies)]
# A plan has no limit for a quota that its setting omits.
Quotas = Annotated[Mapping[PlanQuota, int], NoDecode, BeforeValidator(parse_quotas)]
RetentionDays = Annotated[Mapping[Retained, int], NoDecode, BeforeValidator(parse_retention)]
