"""Describes who sent a request, and checks the scopes of the request's credential."""

from dataclasses import dataclass

from core.errors.access import AUTH_DELIVERY_SCOPE_NEEDED, AUTH_INSUFFICIENT_SCOPE
from core.errors.teams import TEAM_NOT_PERMITTED
from core.ids import AccountId, PersonId
from core.permissions import PERMISSIONS, Permission, Role
from core.scopes import Scope
from services.event_origins import Credential, CredentialKind


@dataclass(frozen=True)
class Caller:
    """The account and the person of a request, and the scopes of the request's credential.

    The account ``account_id`` owns the data on which the request acts, such as lists and credits.
    The person ``person_id`` has logged in, has granted the access, or has made the API key.

    Exactly one of ``key_id``, ``session_id`` and ``grant_id`` is set. An ``unrestricted``
    credential is a session or an unrestricted API key. Only such a credential can create or revoke
    credentials.

    A limited API key can export the rosters of ``list_ids`` and mail the members of these lists.
    ``list_ids`` is empty for all other credentials. ``scopes`` never contains the scope
    ``delivery`` of a limited API key, so that the key can do nothing else that requires this scope.
    ``by_operator``: whether the operator created the limited API key.

    ``role``: the person's role in the account, or ``None`` for an API key, which has only scopes.
    """

    account_id: AccountId
    person_id: PersonId
    scopes: frozenset[Scope]
    unrestricted: bool
    key_id: int | None = None
    session_id: int | None = None
    grant_id: int | None = None
    list_ids: frozenset[int] = frozenset()
    by_operator: bool = False
    role: Role | None = None

    @property
    def is_in_own_account(self) -> bool:
        """The account has the id of the person. A person has at most one such account."""
        return int(self.account_id) == self.person_id

    def may(self, permission: Permission) -> bool:
        return self.role is None or permission in PERMISSIONS[self.role]

    @property
    def credential(self) -> Credential:
        if self.key_id is not None:
            return Credential(CredentialKind.KEY, self.key_id, self.account_id, self.person_id)
        if self.session_id is not None:
            kind = CredentialKind.SESSION
            return Credential(kind, self.session_id, self.account_id, self.person_id)
        return Credential(CredentialKind.GRANT, self.grant_id, self.account_id, self.person_id)


def require_scope(caller: Caller, scope: Scope) -> None:
    if scope not in caller.scopes:
        if scope is Scope.DELIVERY:
            raise AUTH_DELIVERY_SCOPE_NEEDED(needed_scope=scope)
        raise AUTH_INSUFFICIENT_SCOPE(scope=scope, needed_scope=scope)


def require_permission(caller: Caller, permission: Permission) -> None:
    if not caller.may(permission):
        facts = {"permission": permission, "role": caller.role}
        raise TEAM_NOT_PERMITTED(facts=facts, permission=permission, role=caller.role)
