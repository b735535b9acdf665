"""Replaces expected database errors with the product's own errors."""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg2
from sqlalchemy.exc import IntegrityError, OperationalError

from core.errors import DomainError


def get_constraint(error: IntegrityError) -> str | None:
    name: str | None = error.orig.diag.constraint_name  # type: ignore[union-attr]
    return name


@contextmanager
def raise_if_taken(constraint: str, error: DomainError) -> Iterator[None]:
    try:
        yield
    except IntegrityError as violation:
        if get_constraint(violation) != constraint:
            raise
        raise error from None


@contextmanager
def raise_instead(of: type[psycopg2.Error], error: Exception) -> Iterator[None]:
    try:
        yield
    except OperationalError as failure:
        if not isinstance(failure.orig, of):
            raise
        raise error from None
