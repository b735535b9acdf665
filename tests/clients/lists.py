"""An owner who has several of each thing that the API lists, and how each list is asked for."""

import time
from typing import Any

from clients.generator.operations import AnswerKind, operations
from tests.clients.photographs import PhotoFile
from tests.openapi import openapi_document

# So many of each are made.
COUNT = 3
# The lists that have this many items then, or more.
FILLED = {
    "list_attachments",
    "list_jobs",
    "list_lists",
    "list_members",
    "list_security_events",
    "list_tags",
    "read_member_history",
}


def lists_of_a_busy_owner(pressroom: Any) -> dict[str, dict[str, int]]:
    """The arguments of each operation that answers pages, after the owner was busy.

    An operation that needs a thing of another kind is left out.
    """
    made = [
        pressroom.create_list({"title": "Tea", "slug": f"tea-{time.time_ns()}"})["id"]
        for _ in range(COUNT)
    ]
    members = {"members": [{"email": f"reader{n}@example.com"} for n in range(COUNT)]}
    pressroom.add_members(made[0], members)
    user_id = pressroom.list_members(made[0]).items[0]["user_id"]
    for n in range(COUNT):
        pressroom.upload_attachment(PhotoFile())
        edit = {"name": f"Reader {n}", "add_tags": [f"tag {n}"]}
        pressroom.change_member(made[0], user_id, edit)
        pressroom.create_api_key({"name": f"key {n}"})
    known = {"list_id": made[0], "user_id": user_id}
    asked = {}
    for operation in operations(openapi_document()):
        needed = [each.argument for each in operation.parameters if each.is_required]
        is_asked_by_get = operation.body is None
        is_page = operation.answer is AnswerKind.PAGE
        if is_page and is_asked_by_get and set(needed) <= set(known):
            asked[operation.id] = {name: known[name] for name in needed}
    assert set(asked) > FILLED
    return asked
