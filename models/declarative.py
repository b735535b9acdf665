"""The base class of all tables, and the types and constraints that many tables share."""

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Any

from sqlalchemy import ARRAY, BigInteger, CheckConstraint, DateTime, Identity, MetaData, Text, func
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import DeclarativeBase, mapped_column

from core.ids import AccountId, PersonId, random_id

# Every constraint has a name, so that a migration can refer to the constraint.
NAMING = {
    "pk": "pk_%(table_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
}


class Model(DeclarativeBase):
    metadata = MetaData(naming_convention=NAMING)
    type_annotation_map = {  # noqa: RUF012 - SQLAlchemy reads this name from the class
        datetime: DateTime(timezone=True),
        int: BigInteger,
        AccountId: BigInteger,
        PersonId: BigInteger,
        dict[str, Any]: JSONB(none_as_null=True),
        list[str]: ARRAY(Text),
        list[int]: ARRAY(BigInteger),
    }


SerialId = Annotated[int, mapped_column(BigInteger, Identity(), primary_key=True)]
# Public ids are random, so that they don't reveal the number of rows.
RandomId = Annotated[int, mapped_column(primary_key=True, default=random_id, autoincrement=False)]
CreatedAt = Annotated[datetime, mapped_column(server_default=func.now())]
UpdatedAt = Annotated[
    datetime, mapped_column(server_default=func.now(), onupdate=func.clock_timestamp())
]


def allow_values(column: str, values: Iterable[str]) -> CheckConstraint:
    quoted = ", ".join(f"'{value}'" for value in values)
    return CheckConstraint(f"{column} IN ({quoted})", name=f"{column}_known")
