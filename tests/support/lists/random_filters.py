"""Generates random values for members, and random filters that match some of these members."""

import random
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st

from models import FieldType
from services.subscriptions.sign_up_origins import ORIGIN_NAMES

Json = dict[str, Any]

# SQL wildcards and quotes, and letters that case folding changes in unusual ways.
LETTERS = "aAbB zZ%_\\'\"{}ßẞ\u017fsSİi\u0131IΣ\u03c3ςéÉﬁÅå日0"
TEXTS = (
    "Berlin",
    "BERLIN",
    "Köln",
    "köln",
    "STRASSE",
    "Straße",
    "100%",
    "a_b",
    "a\\b",
    "ΟΔΟΣ",
    "οδος",
)
TAGS = ("vip", "Gold Club", "ÉTÉ", "straße", "100%", "old")
CHOICES = ("S", "M", "xl")
FIELDS = {
    "city": FieldType.TEXT,
    "visits": FieldType.NUMBER,
    "born": FieldType.DATE,
    "agreed": FieldType.BOOLEAN,
    "size": FieldType.CHOICE,
}
NUMBERS = (-1.5, 0, 0.1, 1, 7, 7.25, 1e15)
BOUNCES = ("none", "none", "soft", "hard")
ENGAGEMENT_CHOICES = ("yes", "no", "none")
ENGAGEMENT_NUMBERS = ("delivered", "opens", "machine_opens", "clicks")
LAST_DAYS = ("last_delivered", "last_opened", "last_machine_opened", "last_clicked")
ORIGINS = ("fair", "Fair 100%", "utm_source", 'a"b', "a\\b", "köln", "straße", '": "fair')
DAYS = ("1969-07-20", "2000-02-29", "2025-12-31", "2026-01-01")
SOURCES = ("import", "login", "form")
STATUSES = ("pending", "active", "active", "active", "unsubscribed", "removed")
TIERS = ("free", "silver", "gold")
# For each of three days: its first microsecond, a time in the morning, and its last microsecond.
MOMENTS = tuple(
    datetime(2026, 3, day, tzinfo=UTC) + offset
    for day in (1, 2, 29)
    for offset in (
        timedelta(),
        timedelta(hours=9, microseconds=7),
        timedelta(days=1, microseconds=-1),
    )
)


def random_text(dice: random.Random) -> str:
    if dice.random() < 0.5:
        return dice.choice(TEXTS)
    return "".join(dice.choices(LETTERS, k=dice.randint(1, 6))).strip() or "x"


def random_origin(dice: random.Random) -> Json | None:
    """Return random values for the fields that describe where a sign-up came from.

    Some values look like JSON or like the name of a field, to find errors in the filters' SQL.
    """
    values = {name: dice.choice(ORIGINS) for name in ORIGIN_NAMES if dice.random() < 0.4}
    return values or None


def random_engagement(dice: random.Random) -> Json:
    """Return a random row of a member's engagement, in which some days may be missing."""
    days: Json = {name: dice.choice((None, *DAYS)) for name in LAST_DAYS}
    numbers = {name: dice.choice((0, 0, 1, 7)) for name in ENGAGEMENT_NUMBERS}
    return {"measured_since": dice.choice(DAYS), **numbers, **days}


def random_values(dice: random.Random) -> Json:
    values: Json = {
        "city": random_text(dice),
        "visits": dice.choice(NUMBERS),
        "born": dice.choice(DAYS),
        "agreed": dice.random() < 0.5,
        "size": dice.choice(CHOICES),
    }
    return {key: value for key, value in values.items() if dice.random() < 0.5}


_TEXT = st.sampled_from(TEXTS) | st.text(LETTERS, min_size=1, max_size=3)
_ORIGIN = st.sampled_from((*ORIGINS, "fai", "FAIR", "STRASSE", "utm_", '"', "\\", ": ", "none"))
_ADDRESS = st.sampled_from(
    ("ann@example.com", "ANN@Example.com", "ann", "@example.", "n%", "a_", "no address", "ZOË@")
)
_MOMENT = st.sampled_from(MOMENTS).map(datetime.isoformat) | st.sampled_from(
    ("2026-03-01", "2026-03-02", "2026-03-28", "2026-03-29T23:59:59.999999+00:00")
)
_DAYS_AGO = st.sampled_from((-3650, 0, 1, 3650)) | st.integers(-400, 400)
_RELATIVE_DAY = _DAYS_AGO.map(lambda days: {"days_ago": days})
_ORDER_OPERATORS = ("is", "is_not", "before", "after", "at_least", "at_most")


def _condition(name: str, operators: tuple[str, ...], operand: st.SearchStrategy[Any]) -> Any:
    return st.sampled_from(operators).flatmap(
        lambda operator: operand.map(lambda each: {"field": name, operator: each})
    )


def _equality(name: str, operand: st.SearchStrategy[Any], *more: str) -> Any:
    several = st.lists(operand, min_size=1, max_size=3)
    return _condition(name, ("is", "is_not", *more), operand) | _condition(name, ("in",), several)


def _existence(name: str) -> Any:
    return _condition(name, ("exists",), st.booleans())


def conditions(import_ids: list[int]) -> st.SearchStrategy[Json]:
    parts = ("contains", "begins")
    return st.one_of(
        _equality("status", st.sampled_from(sorted(set(STATUSES)))),
        _equality("type", st.sampled_from(TIERS)),
        _equality("email", _ADDRESS, *parts),
        _equality("name", _TEXT, *parts),
        _equality("source", st.sampled_from((*SOURCES, "IMPORT", "none"))),
        _equality("import_id", st.sampled_from((*import_ids, 9_999_999))),
        _condition("email_enabled", ("is", "is_not"), st.booleans()),
        _equality("bounced", st.sampled_from(sorted(set(BOUNCES)))),
        *(
            _condition(name, _ORDER_OPERATORS, _MOMENT | _RELATIVE_DAY)
            for name in ("paid_expiry", "joined_at", "created_at", "updated_at")
        ),
        *(
            _condition(name, ("anniversary",), st.integers(-60, 60))
            for name in ("joined_at", "created_at", "fields.born")
        ),
        _equality("tag", st.sampled_from((*TAGS, "VIP", "STRASSE", "unheard of"))),
        _equality("fields.city", _TEXT, *parts),
        _equality("fields.visits", st.sampled_from(NUMBERS), "at_least", "at_most"),
        _condition("fields.born", _ORDER_OPERATORS, st.sampled_from(DAYS) | _RELATIVE_DAY),
        _condition("fields.agreed", ("is", "is_not"), st.booleans()),
        _equality("fields.size", st.sampled_from((*CHOICES, "s", "gone"))),
        *(_equality(name, _ORIGIN, *parts) for name in ORIGIN_NAMES),
        *(
            _equality(name, st.sampled_from(NUMBERS), "at_least", "at_most")
            for name in ENGAGEMENT_NUMBERS
        ),
        *(
            _condition(name, _ORDER_OPERATORS, st.sampled_from(DAYS) | _RELATIVE_DAY)
            for name in ("measured_since", *LAST_DAYS)
        ),
        _equality("engagement_choice", st.sampled_from(ENGAGEMENT_CHOICES)),
        *(_existence(name) for name in (*ENGAGEMENT_NUMBERS, "measured_since", *LAST_DAYS)),
        *(
            _existence(name)
            for name in ("email", "name", "import_id", "paid_expiry", "tag", *ORIGIN_NAMES)
        ),
        *(_existence(f"fields.{key}") for key in FIELDS),
    )


def filters(import_ids: list[int], depth: int = 3) -> st.SearchStrategy[Json]:
    condition = conditions(import_ids)
    if depth == 0:
        return condition
    inner = filters(import_ids, depth - 1)
    several = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        condition,
        several.map(lambda parts: {"all": parts}),
        several.map(lambda parts: {"any": parts}),
        inner.map(lambda part: {"not": part}),
    )
