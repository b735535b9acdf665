"""The types of events. A type that is in the table stays here, since its rows last for a year."""

from enum import StrEnum


class EventType(StrEnum):
    LOGIN_SUCCEEDED = "login.succeeded"
    # Of an address that has an account. `attempts`: how many in a row.
    LOGIN_FAILED = "login.failed"
    SESSION_ENDED = "session.ended"
    PASSWORD_CHANGED = "password.changed"  # noqa: S105 - a name
    # By a mailed link.
    PASSWORD_RESET = "password.reset"  # noqa: S105 - a name
    ADDRESS_CHANGED = "address.changed"
    # A change taken back by the link that the earlier address was mailed.
    ADDRESS_UNDONE = "address.undone"
    # The subscriptions of an address that the account moved to are the account's now.
    RECORDS_MERGED = "records.merged"
    KEY_CREATED = "key.created"
    KEY_ENDED = "key.ended"
    GRANT_CREATED = "grant.created"
    GRANT_ENDED = "grant.ended"
    FACTOR_ADDED = "factor.added"
    FACTOR_REMOVED = "factor.removed"
    EXPORT_CREATED = "export.created"
    WEBHOOK_CREATED = "webhook.created"
    # It got another URL.
    WEBHOOK_CHANGED = "webhook.changed"
    WEBHOOK_ENDED = "webhook.ended"
    # What the plan doesn't have, and what would be more than it has.
    PLAN_REFUSED = "plan.refused"
    QUOTA_REFUSED = "quota.refused"
    # By an operator.
    PLAN_CHANGED = "plan.changed"
    # Of the operator's own account: what they did to another's, or to the deployment.
    OPERATOR_ACTED = "operator.acted"
