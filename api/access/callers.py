"""The callers of routes, by the credential that they need."""

from collections.abc import Callable
from typing import Annotated

from api.access.requirements import ANY_CALLER, UNRESTRICTED, requires_scope
from core.scopes import Scope
from services.access.caller import Caller

AnyCaller = Annotated[Caller, ANY_CALLER]
UnrestrictedCaller = Annotated[Caller, UNRESTRICTED]
ListReader = Annotated[Caller, requires_scope(Scope.SUBSCRIPTION_READ)]
ListEditor = Annotated[Caller, requires_scope(Scope.SUBSCRIPTION_FULL)]
CreditReader = Annotated[Caller, requires_scope(Scope.CREDIT_READ)]
CreditEditor = Annotated[Caller, requires_scope(Scope.CREDIT_FULL)]
# For an endpoint that calls it first thing in the thread that it works in.
AuthoriseSpender = Annotated[Callable[[], Caller], requires_scope(Scope.CREDIT_FULL, deferred=True)]
