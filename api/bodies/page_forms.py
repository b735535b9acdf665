"""Reads the fields of forms on Pressroom's own pages."""

from typing import Annotated

from fastapi import Depends, Request

from api.bodies.form_or_json import read_form_or_json
from core.errors import requests

FormFields = dict[str, str]

# The key of the form's fields in the ASGI scope of a request.
_FORM_KEY = "pressroom.form"


async def read_page_form(request: Request) -> FormFields:
    """Refuse a body that isn't a form, and a field with a NUL character."""
    # An access rule reads the form before the handler does, and a body arrives only once.
    if _FORM_KEY not in request.scope:
        request.scope[_FORM_KEY] = await _read_fields(request)
    form: FormFields = request.scope[_FORM_KEY]
    return form


async def _read_fields(request: Request) -> FormFields:
    submission = await read_form_or_json(request)
    if submission.fields and not submission.is_form:
        raise requests.BODY_NO_FORM_TYPE()
    fields = {name: str(value) for name, value in submission.fields.items()}
    # Refuse NUL characters, because the database can't store them.
    if any("\0" in value for value in fields.values()):
        raise requests.BODY_CHARACTER_INVALID()
    return fields


FormOf = Annotated[FormFields, Depends(read_page_form)]
