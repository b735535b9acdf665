"""The challenge that a stranger passes on a page of ours, where one is set up."""

from typing import Any

from fastapi import Request

from api.access.browsers import client_address
from api.access.page_sessions import FormFields
from api.state import State
from core.refusals.mailing import CHALLENGE_FAILED
from integrations.challenges.port import ChallengeAction, ChallengeResponse
from integrations.challenges.widgets import WIDGETS


def shown_challenge(state: State, action: ChallengeAction) -> dict[str, Any]:
    """What the page needs to show the widget; ``widget`` is ``None`` where there is none."""
    provider = state.challenges.for_accounts
    if provider is None:
        return {"widget": None}
    widget, site_key = WIDGETS[provider], state.challenges.challenge_for(provider).site_key
    return {"widget": widget, "foreign": widget.policy, "site_key": site_key, "action": action}


async def require_challenge(
    request: Request, state: State, form: FormFields, action: ChallengeAction
) -> None:
    """Check the token that the widget wrote into the form.

    Raises ``challenge.failed``, also for a form without a token, and ``challenge.unavailable``.
    """
    provider = state.challenges.for_accounts
    if provider is None:
        return
    token = form.get(WIDGETS[provider].field, "")
    if not token:
        raise CHALLENGE_FAILED()
    answer = ChallengeResponse(token, action, client_address(request))
    await state.challenges.challenge_for(provider).check(answer)
