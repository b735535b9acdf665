"""Lists the member attributes and the ready-made filters that the filter form offers."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from api.console.console_display import LEFT_REASONS, ORIGINS, SOURCES, TIERS
from models import EngagementMode, FieldType, MailingList, MemberField, SubscriptionStatus
from services.paging import PageRequest
from services.subscriptions import fields, tags
from services.subscriptions.filters.names import (
    DAYS_AGO,
    BounceState,
    EngagementChoice,
    FilterName,
    Operator,
    ValueKind,
    build_filter_names,
)
from storage.unit_of_work import UnitOfWork

# In the filter form, ``missing`` means ``exists`` with the value ``false``.
MISSING = "missing"
_OPERATOR_LABELS: Mapping[str, str] = {
    Operator.IS: "is",
    Operator.IS_NOT: "is not",
    Operator.IN: "is one of",
    Operator.CONTAINS: "contains",
    Operator.BEGINS: "begins with",
    Operator.BEFORE: "is before",
    Operator.AFTER: "is after",
    Operator.NOT_BEFORE: "is at least",
    Operator.NOT_AFTER: "is at most",
    Operator.EXISTS: "has a value",
    MISSING: "is empty",
}
_DATE_OPERATOR_LABELS = {
    Operator.NOT_BEFORE: "is on or after",
    Operator.NOT_AFTER: "is on or before",
}
# In the filter form, the user can type a number of days in the future. In the filter, it becomes a
# negative number of ``DAYS_AGO``.
DAYS_AHEAD = "days_ahead"
# If the user types a number of days instead of a date, the operators have these labels. For
# example, the operator ``BEFORE`` is shown as "is more than", as in "is more than 30 days ago".
_OPERATOR_LABELS_BY_KIND: Mapping[str, Mapping[str, str]] = {
    DAYS_AGO: {
        Operator.BEFORE: "is more than",
        Operator.NOT_AFTER: "is at least",
        Operator.IS: "is",
        Operator.IS_NOT: "is not",
        Operator.NOT_BEFORE: "is at most",
        Operator.AFTER: "is less than",
    },
    DAYS_AHEAD: {
        Operator.BEFORE: "is less than",
        Operator.NOT_AFTER: "is at most",
        Operator.IS: "is",
        Operator.IS_NOT: "is not",
        Operator.NOT_BEFORE: "is at least",
        Operator.AFTER: "is more than",
    },
    Operator.ANNIVERSARY: {Operator.ANNIVERSARY: "is"},
}
_LABELS_BY_KIND = {
    DAYS_AGO: "days ago",
    DAYS_AHEAD: "days from now",
    Operator.ANNIVERSARY: "days until anniversary",
}
DAY_COUNT_KINDS = frozenset(_LABELS_BY_KIND)
_OWN_FIELDS = "Own fields"
# The groups in which the filter form offers the attributes, with the attributes' labels.
_LABELS_BY_GROUP: Mapping[str, Mapping[str, str]] = {
    "Person": {
        "tag": "Tag",
        "type": "Tier",
        "paid_expiry": "Paid until",
        "email": "Address",
        "name": "Name",
    },
    _OWN_FIELDS: {},
    "Mail": {"status": "Status", "email_enabled": "Gets mail", "bounced": "Bounced"},
    "Joining": {
        "joined_at": "Joined",
        "source": "Joined by",
        "import_id": "Import",
        **ORIGINS,
    },
    "Engagement": {
        "delivered": "Deliveries",
        "opens": "Opens",
        "machine_opens": "Machine opens",
        "clicks": "Clicks",
        "measured_since": "Measured since",
        "last_delivered": "Last delivered",
        "last_opened": "Last opened",
        "last_machine_opened": "Last machine open",
        "last_clicked": "Last clicked",
        "engagement_choice": "Engagement answer",
    },
    "Leaving": {"left_reason": "Left because"},
    "Mailings": {
        "bounced_mailing": "Bounced in mailing",
        "complained_mailing": "Complained about mailing",
        "left_mailing": "Left by mailing",
    },
    "Changes": {"created_at": "Added", "updated_at": "Last changed"},
}
_GROUP_BY_NAME = {name: group for group, names in _LABELS_BY_GROUP.items() for name in names}
NO_OPTIONS: Mapping[str, str] = {}
_OPTIONS_BY_NAME: Mapping[str, Mapping[str, str]] = {
    "status": {
        SubscriptionStatus.PENDING.value: "not confirmed",
        SubscriptionStatus.ACTIVE.value: "active",
        SubscriptionStatus.UNSUBSCRIBED.value: "unsubscribed",
        SubscriptionStatus.REMOVED.value: "removed",
    },
    "type": TIERS,
    "bounced": {
        BounceState.NONE.value: "none",
        BounceState.SOFT.value: "soft",
        BounceState.HARD.value: "hard",
    },
    "engagement_choice": {
        EngagementChoice.YES.value: "yes",
        EngagementChoice.NO.value: "no",
        EngagementChoice.NONE.value: "no answer",
    },
    "left_reason": LEFT_REASONS,
}
_YES_NO_OPTIONS = {"true": "yes", "false": "no"}
DATE_KINDS = frozenset({ValueKind.MOMENT, ValueKind.DAY})
MAX_TAGS_TO_CHOOSE = 200
_90_DAYS_AGO = {DAYS_AGO: 90}
# The ready-made filters that need the list to record engagement, by their labels.
_ENGAGEMENT_FILTERS: Mapping[str, dict[str, Any]] = {
    "Inactive for 90 days": {
        "all": [
            # Exclude members who have been measured for a shorter time. Otherwise everybody would
            # seem inactive on the day after the owner turns on engagement.
            {"field": "measured_since", "at_most": _90_DAYS_AGO},
            {"field": "last_delivered", "at_least": _90_DAYS_AGO},
            {"field": "delivered", "at_least": 3},
            {
                "not": {
                    "any": [
                        {"field": "last_opened", "at_least": _90_DAYS_AGO},
                        {"field": "last_clicked", "at_least": _90_DAYS_AGO},
                        {"field": "last_machine_opened", "at_least": _90_DAYS_AGO},
                    ]
                }
            },
        ]
    },
    "Clicked in 30 days": {"field": "last_clicked", "at_least": {DAYS_AGO: 30}},
}
_COMMON_FILTERS: Mapping[str, dict[str, Any]] = {
    "Bounced": {"field": "bounced", "in": [BounceState.SOFT, BounceState.HARD]},
    "Came by a campaign": {"field": "utm_campaign", "exists": True},
}


@dataclass(frozen=True)
class Choice:
    """A member attribute that the filter form can test, such as the tier or a date.

    Attributes:
        kind: the kind of the value: a value of ``ValueKind``, or one of ``DAY_COUNT_KINDS``.
        operators: maps each operator that the form offers to its label.
        options: maps each value that the user can choose to its label. ``options`` is empty if the
            user must type the value.
        group: the label of the group in which the form offers the attribute.
    """

    name: str
    kind: str
    label: str
    operators: Mapping[str, str]
    options: Mapping[str, str] = field(default_factory=dict)
    suggestions: tuple[str, ...] = ()
    group: str = _OWN_FIELDS

    @property
    def value(self) -> str:
        return f"{self.kind}:{self.name}"


def list_ready_made_filters(mailing_list: MailingList) -> dict[str, str]:
    """Return the ready-made filters that fit the list, as labels and JSON texts."""
    is_measured = mailing_list.engagement != EngagementMode.OFF
    filters = {**(_ENGAGEMENT_FILTERS if is_measured else {}), **_COMMON_FILTERS}
    return {label: orjson.dumps(each).decode() for label, each in filters.items()}


def list_choices(uow: UnitOfWork, mailing_list: MailingList) -> dict[str, Choice]:
    """Return the member attributes that the filter form can test, keyed by ``build_choice_key``.

    The choices of each group are next to each other. A date attribute has several choices with
    different keys, because the user can type a date or a number of days.
    """
    own_fields = fields.read_own_fields(uow, mailing_list.user_id).by_key.values()
    by_key = {f"fields.{each.key}": each for each in own_fields}
    rows = tags.list_tags(uow, mailing_list.id, PageRequest(MAX_TAGS_TO_CHOOSE)).rows
    tag_names = tuple(tag.name for tag in rows)
    choices = {}
    for name in build_filter_names(own_fields).values():
        choice = _build_choice(name, by_key.get(name.name), tag_names)
        choices[name.name] = choice
        for kind in _list_day_count_kinds(name):
            choices[build_choice_key(name.name, kind)] = replace(
                choice,
                kind=kind,
                label=f"{choice.label} ({_LABELS_BY_KIND[kind]})",
                operators=_OPERATOR_LABELS_BY_KIND[kind],
            )
    groups = [*_LABELS_BY_GROUP]
    return dict(sorted(choices.items(), key=lambda item: groups.index(item[1].group)))


def _list_day_count_kinds(name: FilterName) -> list[str]:
    is_date = name.kind in DATE_KINDS
    # Offer days in the future only for dates that can be in the future.
    is_future_date = is_date and (name.field_id is not None or name.name == "paid_expiry")
    return [
        *([DAYS_AGO] if is_date else []),
        *([DAYS_AHEAD] if is_future_date else []),
        *([Operator.ANNIVERSARY.value] if name.has_anniversary else []),
    ]


def build_choice_key(name: str, kind: str) -> str:
    return f"{name}:{kind}" if kind in DAY_COUNT_KINDS else name


def _build_choice(
    name: FilterName, member_field: MemberField | None, tag_names: tuple[str, ...]
) -> Choice:
    labels: dict[str, str] = {**_OPERATOR_LABELS}
    if name.kind in DATE_KINDS:
        labels.update({str(each): label for each, label in _DATE_OPERATOR_LABELS.items()})
    operators = {str(each): labels[each] for each in name.operators if each in labels}
    if Operator.EXISTS in operators:
        operators[MISSING] = labels[MISSING]
    options = _OPTIONS_BY_NAME.get(name.name, NO_OPTIONS)
    if name.kind is ValueKind.BOOLEAN:
        options = _YES_NO_OPTIONS
    elif member_field is not None and member_field.type == FieldType.CHOICE:
        options = {each: each for each in member_field.choices}
    suggestions = tag_names if name.name == "tag" else ()
    if name.name == "source":
        suggestions = tuple(SOURCES)
    group = _GROUP_BY_NAME.get(name.name, _OWN_FIELDS)
    label = member_field.label if member_field else _LABELS_BY_GROUP[group][name.name]
    return Choice(name.name, name.kind, label, operators, options, suggestions, group)
