"""Options of a call go into the query: a body that has one is refused, and nothing is done.

Passed over, it would make a dry run an act, and a picture that was to be encrypted public.
"""

from collections.abc import Iterable

from fastapi import Request
from fastapi.routing import APIRoute

from api.bodies import strict_handling
from core.refusals.requests import OPTION_IN_BODY

_FILE = "file"


def refuse_options(request: Request, names: Iterable[str]) -> None:
    """Refuse the names of a body of which the route has a parameter of its query.

    Raises ``request.option_in_body``.
    """
    route: APIRoute = request.scope["route"]
    options = {each.alias for each in route.dependant.query_params}
    for name in names:
        if name in options:
            raise OPTION_IN_BODY(name=name)


def refuse_parts(request: Request, names: Iterable[str]) -> None:
    """Refuse what else a form has than its part ``file``: options, and, if asked to, all others.

    Raises ``request.option_in_body``, ``request.unknown``.
    """
    others = [name for name in names if name != _FILE]
    refuse_options(request, others)
    if others and strict_handling.is_asked(request):
        raise strict_handling.unknown(
            f"body.{name}" for name in others[: strict_handling.MAX_NAMED]
        )
