"""Reads the fields of forms on Pressroom's own pages."""

from typing import Annotated

from fastapi import Depends

from api.bodies.form_or_json import FormOrJsonBodyOf
from core.errors import requests

FormFields = dict[str, str]


async def read_page_form(submission: FormOrJsonBodyOf) -> FormFields:
    """Refuse a body that isn't a form, and a field with a NUL character."""
    if submission.fields and not submission.is_form:
        raise requests.BODY_NO_FORM_TYPE()
    fields = {name: str(value) for name, value in submission.fields.items()}
    # Refuse NUL characters, because the database can't store them.
    if any("\0" in value for value in fields.values()):
        raise requests.BODY_CHARACTER_INVALID()
    return fields


FormOf = Annotated[FormFields, Depends(read_page_form)]
