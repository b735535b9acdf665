"""Describes jobs, maintenance tasks and changes of orders in words, for the operators' pages."""

from models import OrderVia

_JOB_LABELS = {
    "account.mail": "Account e-mail",
    "account.show_address": "Change of a shown address",
    "attachment.process": "Image conversion",
    "attachment.thumbnail": "Image preview",
    "export.delivery": "Export for a mailing",
    "export.limited_delivery": "Export for a mailing",
    "export.members": "Export of members",
    "members.add": "Bulk sign-up",
    "members.add_values": "Bulk sign-up",
    "members.apply": "Part of an import",
    "members.bulk": "Bulk action",
    "members.bulk_undo": "Undo of a bulk action",
    "members.import": "Import of members",
    "members.suppress": "Import of bounces",
    "members.undo": "Undo of an import",
    "opt_out.follow": "Opt-out",
    "person.erase": "Erasure of a person",
    "subscription.mail_confirmation": "Confirmation e-mail",
    "subscription.mail_preferences": "E-mail with a preferences link",
    "subscription.mail_reminder": "Reminder e-mail",
    "subscription.mail_welcome": "Welcome e-mail",
    "topup.open": "Payment page",
    "webhook.send": "Webhook delivery",
}
_TASK_LABELS = {
    "backup.create": "Create backups",
    "backup.journal": "Record opt-outs and erasures for backups",
    "credits.low_balance": "Send e-mails about low balances",
    "credits.reverse": "Refund interrupted composer calls",
    "credits.verify": "Check the credit ledger",
    "maintenance.deleted_tags": "Remove deleted tags from members",
    "maintenance.engagement": "Delete engagement that is no longer allowed",
    "maintenance.fold_counts": "Update member counts",
    "maintenance.purge": "Delete data after its retention period",
    "maintenance.remind": "Remind people to confirm",
    "maintenance.shorten_ips": "Shorten old IP addresses",
    "maintenance.strangers": "Delete abandoned sign-ups, orders and accounts",
    "maintenance.sweep_files": "Delete old import and export files",
    "maintenance.sweep_uploads": "Delete abandoned uploads",
    "objects.remove": "Delete files of deleted records",
    "operator.mail": "Send e-mails about failed checks",
    "segments.compare": "Compare watched segments with their members",
    "segments.upkeep": "Delete recorded members of segments",
    "senders.apply": "Apply reports of senders",
    "senders.silence": "Notice silent senders",
    "stores.check": "Check for space in the database and the object storage",
    "topups.poll": "Check unpaid orders",
    "webhooks.expire": "Pause webhooks of expired API keys",
}
_CAUSE_LABELS = {
    OrderVia.REQUEST: "Buyer",
    OrderVia.JOB: "Pressroom",
    OrderVia.WEBHOOK: "Message from the payment provider",
    OrderVia.RETURN: "Buyer’s return from the payment page",
    OrderVia.POLL: "Check with the payment provider",
    OrderVia.CLAIM: "Claim by the buyer",
    OrderVia.OPERATOR: "Operator",
}


def describe_job(kind: str) -> str:
    """Return a job kind in words, or its name if a newer release created the job."""
    return _JOB_LABELS.get(kind, kind)


def describe_task(name: str) -> str:
    """Return in words what a maintenance task does, or its name if the task is unknown."""
    return _TASK_LABELS.get(name, name)


def describe_cause(via: str) -> str:
    return _CAUSE_LABELS[OrderVia(via)]


def shorten_reason(message: str) -> str:
    """Return the first sentence of an error message."""
    first, separator, _ = message.partition(". ")
    return f"{first}." if separator else first
