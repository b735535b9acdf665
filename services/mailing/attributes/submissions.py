"""What people say of themselves when they subscribe: a name, and fields that the owner opened.

A stranger sets these on a record that the submission makes, and on no other: anybody can write any
address into a form. On a record that exists they wait, with the token that is mailed for that very
submission, until the person confirms by it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from models import Subscription
from services.mailing.attributes import fields
from services.mailing.attributes.field_values import FieldValue
from storage.unit_of_work import UnitOfWork


@dataclass(frozen=True)
class Submission:
    """
    Attributes:
        fields: stored values, by the ids of fields as text.
        language: that of the page on which the person subscribed.
    """

    name: str | None = None
    fields: Mapping[str, FieldValue] = field(default_factory=dict)
    language: str | None = None

    @property
    def columns(self) -> dict[str, Any]:
        """What a new record gets of it."""
        return {"name": self.name, "fields": dict(self.fields), "language": self.language}

    @property
    def waiting(self) -> dict[str, Any] | None:
        """As it is stored until the person confirms."""
        return self.columns if self.name or self.fields or self.language else None


NOTHING = Submission()


def read(
    uow: UnitOfWork,
    owner_id: int,
    *,
    name: str | None = None,
    values: Mapping[str, object],
    is_text: bool = False,
) -> Submission:
    """The submission of a form to a list of this owner; ``is_text`` where all values are texts.

    Raises ``field.value``, for a field that is not public as for one that is not there.
    """
    name = (name or "").strip() or None
    if not values:
        return Submission(name)
    found = fields.own(uow, owner_id).public().read(values, is_text=is_text)
    return Submission(name, fields.merged({}, found))


def confirmed(
    uow: UnitOfWork, owner_id: int, record: Subscription | None, waited: Mapping[str, Any] | None
) -> dict[str, Any]:
    """The columns that a record gets of what ``Submission.waiting`` stored, now that it may.

    A field that the owner closed or retired meanwhile is left out.
    """
    if not waited:
        return {}
    public = fields.own(uow, owner_id).public().of_ids(waited["fields"])
    before = record.fields if record else {}
    given = {"name": waited["name"]} if waited["name"] else {}
    spoken = {"language": waited["language"]} if waited["language"] else {}
    return {**given, **spoken, "fields": fields.merged(before, public)}
