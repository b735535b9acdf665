"""Errors about accounts with several people."""

from core.errors.catalogue import conflict, forbidden, not_found

ACCOUNT_NOT_FOUND = not_found(
    "account.not_found", "This account doesn't exist, or you aren't in its team."
)
ACCOUNT_REQUIRED = conflict(
    "account.required",
    "You own no account. Name the account in the header Pressroom-Account. GET /accounts lists the "
    "accounts in which you can act.",
)
ACCOUNT_MISMATCH = forbidden(
    "account.mismatch",
    "Your credential can't act in the account that the header Pressroom-Account names.",
)
TEAM_NOT_PERMITTED = forbidden(
    "team.not_permitted",
    "Your role in this account, {role}, doesn't have the permission {permission}.",
    role="analyst",
    permission="members",
)
TEAM_ALREADY = conflict(
    "team.already", "{email} is already in the team of this account.", email="ann@example.com"
)
TEAM_NOT_FOUND = not_found("team.not_found", "This person isn't in the team of this account.")
TEAM_OWNER_FIXED = conflict("team.owner_fixed", "The owner of an account can't be removed.")
TEAM_TOO_MANY = conflict("team.too_many", "A person can be on at most {most} teams.", most=50)
USER_OWNS_TEAM = conflict(
    "user.owns_team",
    "This user owns an account with teammates. Remove the teammates first.",
)
