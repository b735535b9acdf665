"""Stores the answer of an identified person: whether a list may record opens and clicks."""

from fastapi import Request

from api.auth import actors
from api.auth.actors import Principal
from api.html.problems import get_reader_language
from api.state import State
from services.subscriptions import lists
from services.subscriptions.members import engagement_choices


def store_answer(
    request: Request, state: State, list_id: int, principal: Principal, *, is_allowed: bool
) -> None:
    """Say whether a list may record opens and clicks. A limited trace id allows only a no."""
    actor = actors.build_principal_actor(request, principal)
    with state.resources.unit_of_work() as uow:
        mailing_list = lists.get_list(uow, list_id, archived=True)
        if is_allowed:
            person = principal.get_person(uow, mailing_list)
            wording = engagement_choices.get_wording(mailing_list, get_reader_language(request))
            engagement_choices.allow_engagement(uow, mailing_list, person, actor, wording=wording)
        elif person_or_none := principal.find_person(uow, mailing_list):
            engagement_choices.refuse_engagement(uow, mailing_list, person_or_none, actor)
