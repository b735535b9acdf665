"""The permissions that a person's role in an account grants."""

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
