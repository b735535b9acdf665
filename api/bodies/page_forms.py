"""Reads the fields of forms on Pressroom's own pages."""

from typing import Annotated

from fastapi import Depends

from api.bodies.form_or_json import FormOrJsonBodyOf
from core.errors import requests

FormFields = dict[str, str]


async def read_page_form(submission: FormOrJsonBodyOf) -> FormFields:
    """Return the fields of a form that was submitted from one of Pressroom's pages.

    Raises ``body.unsupported_type`` if the request body isn't a form. Raises ``body.invalid`` if a
    field contains a NUL character.
    """
    if submission.fields and not submission.is_form:
        raise requests.BODY_NO_FORM_TYPE()
    fields = {name: str(value) for name, value in submission.fields.items()}
    # Refuse NUL characters, because the database can't store them.
    if any("\0" in value for value in fields.values()):
        raise requests.BODY_CHARACTER_INVALID()
    return fields


FormOf = Annotated[FormFields, Depends(read_page_form)]
