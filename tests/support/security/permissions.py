"""The expected permissions of roles, kinds of jobs and types of events, written by hand."""

# Maps each role to its permissions.
PERMISSIONS = {
    "analyst": {"any", "figures", "money.read"},
    "editor": {"any", "figures", "members", "edit", "images", "composer"},
    "admin": {
        *("any", "figures", "members", "edit", "close", "export", "images", "composer"),
        *("money.read", "money", "access", "audit", "team"),
    },
}
# Maps each kind of job to the permissions for seeing and for changing the job.
PERMISSIONS_BY_JOB_KIND = {
    "attachment.process": ("images", "images"),
    "export.members": ("figures", "export"),
    "members.add": ("figures", "edit"),
    "members.add_values": ("figures", "edit"),
    "members.bulk": ("figures", "edit"),
    "members.bulk_undo": ("figures", "edit"),
    "members.import": ("figures", "edit"),
    "members.suppress": ("figures", "edit"),
    "members.undo": ("figures", "edit"),
    "topup.open": ("money.read", "money"),
}
# Maps each type of event to the permission for seeing the event.
PERMISSIONS_BY_EVENT_TYPE = {
    "attachment.deleted": "images",
    "attachment.failed": "images",
    "attachment.ready": "images",
    "bulk.ended": "figures",
    "credits.low": "money.read",
    "export.ended": "figures",
    "grant.created": "access",
    "grant.ended": "access",
    "import.ended": "figures",
    "key.created": "access",
    "key.ended": "access",
    "mailing.alarm": "figures",
    "order.disputed": "money.read",
    "order.paid": "money.read",
    "order.refunded": "money.read",
    "order.review": "money.read",
    "segment.entered": "members",
    "segment.left": "members",
    "segment.many": "figures",
    "sender.failing": "access",
    "sender.recovered": "access",
    "subscription.changed": "members",
    "subscription.confirmed": "members",
    "subscription.created": "members",
    "subscription.email_off": "members",
    "subscription.email_on": "members",
    "subscription.left": "members",
    "subscription.removed": "members",
    "subscription.transferred": "members",
}
