"""Builds the SQL conditions for a filter's comparisons with columns, tags and fields.

Text comparisons use Unicode's full case folding, like ``str.casefold`` in Python, with a fixed
collation, so that the result doesn't depend on the database's locale. Values from a filter are
always bound parameters of the SQL statement.
"""

import calendar
import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from operator import ge, gt, le, lt
from typing import Any

from sqlalchemy import (
    ColumnElement,
    FromClause,
    Select,
    Text,
    and_,
    any_,
    cast,
    collate,
    exists,
    extract,
    func,
    literal,
    literal_column,
    not_,
    or_,
    select,
)
from sqlalchemy.dialects.postgresql import JSONB

from core.errors import DomainError
from core.languages.shown_lines import strip_invisible
from models import Bounce, EngagementMode, MemberTag, Subscription, SubscriptionStatus
from services.accounts import email_addresses
from services.subscriptions.filters import departure_conditions, engagement_conditions
from services.subscriptions.filters.names import (
    ENGAGEMENT_NAMES,
    LEFT_REASON_NAME,
    MAILING_NAMES,
    STATUS_NAME,
    BounceState,
    FilterName,
    Operator,
    Span,
    Value,
    ValueKind,
)
from services.subscriptions.members.departures import LeftReason
from services.subscriptions.members.member_pages import build_prefix_condition
from services.subscriptions.sign_up_origins import ORIGIN_NAMES

Condition = ColumnElement[bool]

# The minimum length of a text that Postgres can find with a trigram index.
MIN_INDEXED_CHARACTERS = 3
# The value of the columns ``fields`` and ``tag_ids`` of a member without fields or tags. The SQL
# text must equal the text in the definitions of the partial indexes, because otherwise Postgres
# wouldn't use these indexes.
_EMPTY: ColumnElement[Any] = literal_column("'{}'")
CASE_FOLDING_COLLATION = "pg_unicode_fast"
_COMPARISONS: Mapping[Operator, Callable[[Any, Any], Condition]] = {
    Operator.BEFORE: lt,
    Operator.NOT_AFTER: le,
    Operator.AFTER: gt,
    Operator.NOT_BEFORE: ge,
}


@dataclass(frozen=True)
class Members:
    """The table or subquery that an SQL condition applies to.

    Conditions on bounces, departures, mailings and engagement use ``list_id``. It is ``None`` for
    members of several lists.
    ``engagement_mode`` is the mode of the list.
    ``tag_ids`` omits tags that the list doesn't have.
    """

    rows: FromClause = Subscription.__table__
    list_id: int | None = None
    engagement_mode: str = EngagementMode.OFF
    tag_ids: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Comparison:
    """A comparison of a member's column, tag or field.

    The parser converts ``is_not`` to a negated ``is``. Only ``in`` has several values, and
    ``exists`` has none.
    """

    name: FilterName
    operator: Operator
    values: tuple[Value, ...] = ()

    def build_condition(self, members: Members) -> Condition:
        if self.name.field_id is not None:
            return _compare_field(self, members)
        return _CONDITION_BUILDERS[self.name.name](self, members)

    def build_indexed_condition(self, members: Members) -> Condition | None:
        """Build a condition that is true for all matching members, if an index helps."""
        if self.name.field_id is not None:
            return _build_indexed_field_condition(self, members)
        if self.operator is Operator.EXISTS and self.name.name not in ORIGIN_NAMES:
            return None
        if self.operator is Operator.ANNIVERSARY:
            return None
        build = _INDEXED_CONDITION_BUILDERS.get(self.name.name)
        return None if build is None else build(self, members)

    def is_true_of(self, status: SubscriptionStatus) -> bool | None:
        """Return the result for all members with the status, or ``None`` if it depends on more."""
        if self.name == LEFT_REASON_NAME and status not in self._list_statuses_of_reasons():
            return False
        if self.name in ENGAGEMENT_NAMES and status != SubscriptionStatus.ACTIVE:
            return False
        return status in self.values if self.name == STATUS_NAME else None

    def _list_statuses_of_reasons(self) -> set[SubscriptionStatus]:
        statuses = {SubscriptionStatus.UNSUBSCRIBED, SubscriptionStatus.REMOVED}
        if self.operator is Operator.EXISTS or LeftReason.BOUNCED in self.values:
            statuses.add(SubscriptionStatus.ACTIVE)
        return statuses

    def comparisons(self) -> "Iterator[Comparison]":
        yield self


_ConditionBuilder = Callable[[Comparison, Members], Condition]
_IndexedConditionBuilder = Callable[[Comparison, Members], Condition | None]


def _fold_case(value: ColumnElement[str]) -> ColumnElement[str]:
    return func.casefold(collate(value, CASE_FOLDING_COLLATION))


def _build_pattern(operator: Operator, value: str) -> str:
    """Build a ``LIKE`` pattern with escaped wildcards."""
    escaped = re.sub(r"([\\%_])", r"\\\1", value)
    return f"%{escaped}%" if operator is Operator.CONTAINS else f"{escaped}%"


def _compare_text(comparison: Comparison, column: ColumnElement[str]) -> Condition:
    operator = comparison.operator
    values = [form for value in comparison.values for form in _list_unicode_forms(str(value))]
    if operator in {Operator.CONTAINS, Operator.BEGINS}:
        patterns = [_fold_case(literal(_build_pattern(operator, value))) for value in values]
        return or_(*(_fold_case(column).like(each) for each in patterns))
    return _fold_case(column).in_([_fold_case(literal(value)) for value in values])


def _list_unicode_forms(value: str) -> Iterable[str]:
    """Return NFC and NFD, because the database may contain either form."""
    return dict.fromkeys(unicodedata.normalize(form, value) for form in ("NFC", "NFD"))


def _compare_name(comparison: Comparison, members: Members) -> Condition:
    column = members.rows.c.name
    if comparison.operator is Operator.EXISTS:
        # A member with an empty name counts as having no name.
        return column != ""
    return _compare_text(comparison, column)


def _compare_address(comparison: Comparison, members: Members) -> Condition:
    column = members.rows.c.email
    operator = comparison.operator
    if operator is Operator.EXISTS:
        return column.is_not(None)
    values = [str(value) for value in comparison.values]
    # Don't strip a value that consists only of invisible characters. Stripping such a value would
    # make it empty, and an empty value would match every address.
    lowered = unicodedata.normalize("NFC", strip_invisible(values[0]) or values[0]).lower()
    if operator is Operator.CONTAINS:
        return column.like(_build_pattern(operator, lowered))
    if operator is Operator.BEGINS:
        return build_prefix_condition(column, literal(lowered))
    return column.in_([_normalise_address(value) for value in values])


def _normalise_address(value: str) -> str:
    # Don't raise an error for an invalid address, because a filter with an invalid address simply
    # matches no member.
    with suppress(DomainError):
        return email_addresses.normalise_address(value)
    return value.lower()


def _compare_column(comparison: Comparison, members: Members) -> Condition:
    column = members.rows.c[comparison.name.name]
    if comparison.operator is Operator.EXISTS:
        return column.is_not(None)
    return column.in_(comparison.values)


def _compare_engagement(comparison: Comparison, members: Members) -> Condition:
    """Compare a column of ``MemberEngagement``, whose rows are ``members.rows``."""
    compare = _COMPARISONS.get(comparison.operator)
    if compare is None:
        return _compare_column(comparison, members)
    return compare(members.rows.c[comparison.name.name], comparison.values[0])


def _compare_moment_column(comparison: Comparison, members: Members) -> Condition:
    if comparison.operator is Operator.EXISTS:
        return _compare_column(comparison, members)
    return _compare_moment(comparison, members.rows.c[comparison.name.name])


def _compare_moment(comparison: Comparison, moment: ColumnElement[object]) -> Condition:
    (span,) = comparison.values
    if isinstance(span, date):
        return _compare_anniversary(moment, span)
    assert isinstance(span, Span)
    match comparison.operator:
        case Operator.BEFORE:
            return moment < span.begin
        case Operator.NOT_AFTER:
            return moment < span.end
        case Operator.AFTER:
            return moment >= span.end
        case Operator.NOT_BEFORE:
            return moment >= span.begin
        case _:
            return and_(moment >= span.begin, moment < span.end)


def _compare_anniversary(moment: ColumnElement[object], day: date) -> Condition:
    utc_time = func.timezone("UTC", moment)
    return and_(
        extract("month", utc_time) == day.month,
        extract("day", utc_time).in_(_list_days_of_month(day)),
        moment < datetime(day.year, 1, 1, tzinfo=UTC),
    )


def _list_days_of_month(day: date) -> list[int]:
    """Return the days whose anniversaries are on ``day``, as days of its month."""
    if (day.month, day.day) == (2, 28) and not calendar.isleap(day.year):
        return [28, 29]
    return [day.day]


def _compare_tags(comparison: Comparison, members: Members) -> Condition:
    column = members.rows.c.tag_ids
    if comparison.operator is Operator.EXISTS:
        # Check that at least one of the member's tags exists, because ``tag_ids`` may contain ids
        # of deleted tags.
        return and_(column != _EMPTY, exists().where(MemberTag.id == any_(column)))
    # A stored filter contains tag ids. If a tag didn't exist when the filter was stored, the filter
    # contains the tag's name, which matches no member.
    possible_ids = (
        each if isinstance(each, int) else members.tag_ids.get(str(each))
        for each in comparison.values
    )
    tag_ids = [tag_id for tag_id in possible_ids if tag_id is not None]
    return column.bool_op("&&")(cast(tag_ids, column.type))


def _select_bounced_users(members: Members, *, is_hard: bool) -> Select[Any]:
    return select(Bounce.user_id).where(
        Bounce.list_id == members.list_id,
        Bounce.user_id.is_not(None),
        Bounce.ended_at.is_(None),
        Bounce.lifted_at.is_(None),
        # Postgres can use a partial index of ``bounces`` only if the query repeats the condition of
        # the index.
        Bounce.is_hard if is_hard else not_(Bounce.is_hard),
    )


def _compare_bounces(comparison: Comparison, members: Members) -> Condition:
    rows = members.rows.c
    hard_bounces = _select_bounced_users(members, is_hard=True)
    # A list can have very many hard bounces, so look up the hard bounces of one member at a time.
    # Skip active members who receive the list's mail, because a hard bounce would have turned off
    # the mail.
    # OFFSET 0 makes Postgres use an index, instead of reading the bounces of all members.
    has_hard = and_(
        or_(not_(rows.email_enabled), rows.status != SubscriptionStatus.ACTIVE.value),
        exists(hard_bounces.where(Bounce.user_id == rows.user_id).offset(literal_column("0"))),
    )
    # A list has few soft bounces in effect, because a soft bounce usually stops counting when the
    # next mail reaches the member. Postgres reads a list's soft bounces only once per query,
    # because the subquery doesn't refer to a member.
    has_soft = rows.user_id.in_(_select_bounced_users(members, is_hard=False))
    conditions = {
        BounceState.NONE: not_(or_(has_hard, has_soft)),
        BounceState.SOFT: and_(has_soft, not_(has_hard)),
        BounceState.HARD: has_hard,
    }
    return or_(*(conditions[BounceState(str(value))] for value in comparison.values))


def _build_indexed_bounce_condition(comparison: Comparison, members: Members) -> Condition | None:
    states = {BounceState(str(value)) for value in comparison.values}
    if BounceState.NONE in states:
        return None
    queries = [
        _select_bounced_users(members, is_hard=state is BounceState.HARD) for state in states
    ]
    # Convert the result of each subquery to an array, so that Postgres can find the members in an
    # index.
    bounced_users = [func.array(query.scalar_subquery()) for query in queries]
    return or_(*(members.rows.c.user_id == any_(each) for each in bounced_users))


def _compare_origin(comparison: Comparison, members: Members) -> Condition:
    value = members.rows.c.origin.op("->>", return_type=Text())(literal(comparison.name.name))
    if comparison.operator is Operator.EXISTS:
        return value.is_not(None)
    return _compare_text(comparison, value)


_CONDITION_BUILDERS: Mapping[str, _ConditionBuilder] = {
    **dict.fromkeys(("status", "type", "import_id"), _compare_column),
    "email": _compare_address,
    "name": _compare_name,
    # Values in the column ``source`` are always in lower case.
    "source": lambda comparison, members: members.rows.c.source.in_(
        [str(value).lower() for value in comparison.values]
    ),
    "email_enabled": lambda comparison, members: members.rows.c.email_enabled.is_(
        comparison.values[0]
    ),
    "bounced": _compare_bounces,
    LEFT_REASON_NAME.name: lambda comparison, members: departure_conditions.compare_left_reason(
        comparison.values, members.rows
    ),
    **dict.fromkeys(
        (each.name for each in MAILING_NAMES),
        lambda comparison, members: departure_conditions.compare_mailings(
            comparison.name, comparison.values, members.rows, members.list_id
        ),
    ),
    "joined_at": lambda comparison, members: _compare_moment(
        comparison, func.coalesce(members.rows.c.joined_at, members.rows.c.created_at)
    ),
    **dict.fromkeys(("created_at", "updated_at", "paid_expiry"), _compare_moment_column),
    **dict.fromkeys(ORIGIN_NAMES, _compare_origin),
    **dict.fromkeys((each.name for each in ENGAGEMENT_NAMES), _compare_engagement),
    "engagement_choice": lambda comparison, members: engagement_conditions.compare_choices(
        comparison.values, members.rows, members.list_id
    ),
    "tag": _compare_tags,
}


def _build_indexed_text_condition(
    build: _ConditionBuilder, comparison: Comparison, members: Members
) -> Condition | None:
    is_part = comparison.operator is Operator.CONTAINS
    if is_part and len(str(comparison.values[0])) < MIN_INDEXED_CHARACTERS:
        return None
    return build(comparison, members)


def _build_indexed_origin_condition(comparison: Comparison, members: Members) -> Condition | None:
    """Search the whole JSON column ``origin`` for parts of a value.

    ``_compare_origin`` therefore compares the named value too.
    """
    name = comparison.name.name
    operator = comparison.operator
    origin = members.rows.c.origin
    origin_text = _fold_case(cast(origin, Text()))
    values = [str(value) for value in comparison.values]
    if operator is Operator.EXISTS:
        has_name = origin_text.like(_build_pattern(Operator.CONTAINS, f'"{name}"'))
        return and_(origin.is_not(None), has_name)
    if operator in {Operator.IS, Operator.IN}:
        document = cast(origin_text, JSONB())
        return and_(origin.is_not(None), _contains_any_value(document, name, values))
    if len(values[0]) < MIN_INDEXED_CHARACTERS:
        return None
    # Write the value as it appears in JSON text, where quotes and backslashes are escaped.
    quoted = _write_json(values[0])[1:-1]
    if operator is Operator.BEGINS:
        quoted = f'"{quoted}'
    part = replace(comparison, operator=Operator.CONTAINS, values=(quoted,))
    return and_(origin.is_not(None), _compare_text(part, cast(origin, Text())))


_INDEXED_CONDITION_BUILDERS: Mapping[str, _IndexedConditionBuilder] = {
    "email": partial(_build_indexed_text_condition, _compare_address),
    "name": partial(_build_indexed_text_condition, _compare_name),
    "import_id": _compare_column,
    "bounced": _build_indexed_bounce_condition,
    LEFT_REASON_NAME.name: lambda comparison, members: (
        departure_conditions.build_indexed_left_reason_condition(
            comparison.values, members.rows, members.list_id
        )
    ),
    **dict.fromkeys(
        (each.name for each in MAILING_NAMES),
        lambda comparison, members: departure_conditions.build_indexed_mailing_condition(
            comparison.name, comparison.values, members.rows, members.list_id
        ),
    ),
    "created_at": _compare_moment_column,
    # For members whose ``joined_at`` is NULL, compare ``created_at`` instead. A comparison of
    # ``coalesce(joined_at, created_at)`` couldn't use an index.
    "joined_at": lambda comparison, members: or_(
        _compare_moment(comparison, members.rows.c.joined_at),
        and_(
            members.rows.c.joined_at.is_(None),
            _compare_moment(comparison, members.rows.c.created_at),
        ),
    ),
    **dict.fromkeys(ORIGIN_NAMES, _build_indexed_origin_condition),
    "engagement_choice": lambda comparison, members: (
        engagement_conditions.build_indexed_choice_condition(
            comparison.values, members.rows, members.list_id
        )
    ),
    "tag": lambda comparison, members: and_(
        members.rows.c.tag_ids != _EMPTY, _compare_tags(comparison, members)
    ),
}


def _compare_field(comparison: Comparison, members: Members) -> Condition:
    key = literal(str(comparison.name.field_id))
    fields = members.rows.c.fields
    operator = comparison.operator
    json_value = fields.op("->", return_type=JSONB())(key)
    text_value = fields.op("->>", return_type=Text())(key)
    if operator is Operator.EXISTS:
        return json_value.is_not(None)
    match comparison.name.kind:
        case ValueKind.NUMBER:
            numbers = [_build_json(each) for each in comparison.values]
            if operator not in _COMPARISONS:
                return json_value.in_(numbers)
            is_reached = _COMPARISONS[operator](json_value, numbers[0])
            # Compare only JSON numbers, because Postgres would also compare JSON values of
            # different types.
            return and_(func.jsonb_typeof(json_value) == "number", is_reached)
        case ValueKind.DAY:
            return _compare_day_text(comparison, collate(text_value, "C"))
        case ValueKind.BOOLEAN:
            return json_value == _build_json(comparison.values[0])
        case _:
            return _compare_text(comparison, text_value)


def _compare_day_text(comparison: Comparison, text: ColumnElement[str]) -> Condition:
    """Compare dates as text, because the alphabetical order of ``YYYY-MM-DD`` is their order."""
    day = comparison.values[0]
    if isinstance(day, date):
        endings = [f"{day.month:02}-{each:02}" for each in _list_days_of_month(day)]
        return and_(func.right(text, 5).in_(endings), text < f"{day.year:04}")
    days = [str(each) for each in comparison.values]
    compare = _COMPARISONS.get(comparison.operator)
    return text.in_(days) if compare is None else compare(text, days[0])


def _write_json(value: Value) -> str:
    return str(value) if isinstance(value, Decimal) else json.dumps(value, ensure_ascii=False)


def _build_json(value: Value) -> ColumnElement[object]:
    return cast(literal(_write_json(value), Text()), JSONB())


def _build_indexed_field_condition(comparison: Comparison, members: Members) -> Condition | None:
    """Use the whole JSON column ``fields``, because a single index covers all fields."""
    if comparison.operator not in {Operator.IS, Operator.IN}:
        return None
    fields = members.rows.c.fields
    document = cast(_fold_case(cast(fields, Text())), JSONB())
    key = str(comparison.name.field_id)
    return and_(fields != _EMPTY, _contains_any_value(document, key, comparison.values))


def _contains_any_value(
    document: ColumnElement[Any], key: str, values: Iterable[Value]
) -> Condition:
    json_texts = (_write_json(value) for value in values)
    forms = (form for json_text in json_texts for form in _list_unicode_forms(json_text))
    parts = [literal(f"{{{json.dumps(key)}: {form}}}", Text()) for form in forms]
    return or_(*(document.contains(cast(_fold_case(part), JSONB())) for part in parts))
