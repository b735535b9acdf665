"""The roles of people in an account, and the permissions that each role grants."""

from collections.abc import Mapping
from enum import StrEnum


class Permission(StrEnum):
    """A role has a permission in the whole account. API keys have scopes and no role."""

    ANY = "any"
    FIGURES = "figures"
    MEMBERS = "members"
    EDIT = "edit"
    CLOSE = "close"
    EXPORT = "export"
    IMAGES = "images"
    COMPOSER = "composer"
    MONEY_READ = "money.read"
    MONEY = "money"
    ACCESS = "access"
    AUDIT = "audit"
    TEAM = "team"
    OWNER = "owner"


class Role(StrEnum):
    OWNER = "owner"
    ADMIN = "admin"
    EDITOR = "editor"
    ANALYST = "analyst"


_EVERYBODY = frozenset({Permission.ANY, Permission.FIGURES})
PERMISSIONS: Mapping[Role, frozenset[Permission]] = {
    Role.OWNER: frozenset(Permission),
    Role.ADMIN: frozenset(Permission) - {Permission.OWNER},
    Role.EDITOR: _EVERYBODY
    | {Permission.MEMBERS, Permission.EDIT, Permission.IMAGES, Permission.COMPOSER},
    Role.ANALYST: _EVERYBODY | {Permission.MONEY_READ},
}
