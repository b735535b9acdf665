"""Requests of operators. To all others their pages are as pages that don't exist.

Whether a person is an operator is asked first: no form of another person is read, and nobody else
is led to the login page for a page that is not for them.
"""

from typing import Annotated

from fastapi import Depends, Request

from api.access.browsers import CSRF_FIELD, require_csrf
from api.access.page_sessions import FormOf, Member, PageSession, require_recent
from api.console.visits import ConsoleVisit
from api.limits.bulkheads import AUTHENTICATION
from api.parameters import StateOf
from core.refusals.requests import ROUTE_NOT_FOUND


async def _operator(member: Member) -> PageSession:
    if not member.is_operator:
        raise ROUTE_NOT_FOUND()
    return member


Operator = Annotated[PageSession, Depends(_operator)]


async def _visit(request: Request, state: StateOf, operator: Operator) -> ConsoleVisit:
    return ConsoleVisit(request, state, operator)


@AUTHENTICATION.threaded
def _form_visit(request: Request, state: StateOf, operator: Operator, form: FormOf) -> ConsoleVisit:
    require_csrf(request, state, operator.cookie, form.get(CSRF_FIELD))
    with state.resources.unit_of_work() as uow:
        require_recent(uow, operator)
    return ConsoleVisit(request, state, operator, form)


OperatorVisit = Annotated[ConsoleVisit, Depends(_visit)]
# What an operator changes needs a login of the last 15 minutes.
OperatorFormVisit = Annotated[ConsoleVisit, Depends(_form_visit)]
