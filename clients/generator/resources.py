"""Groups the operations of the API by resource, for the clients of all languages.

A client calls the operation ``create_list`` as ``client.lists.create``.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from clients.generator.operations import Operation, to_camel_case

# The operation of each resource method, per resource. Python uses the names in this table, and
# TypeScript uses the same names in camel case. The names of released methods must stay.
RESOURCES: dict[str, dict[str, str]] = {
    "account": {
        "read": "read_me",
        "change": "change_me",
        "list_security_events": "list_security_events",
    },
    "api_keys": {
        "create": "create_api_key",
        "list": "list_api_keys",
        "revoke": "revoke_api_key",
        "list_requests": "list_api_key_requests",
    },
    "attachments": {
        "upload": "upload_attachment",
        "list": "list_attachments",
        "read": "read_attachment",
        "change": "change_attachment",
        "delete": "delete_attachment",
        "create_link": "create_attachment_link",
        "download": "download_media",
    },
    "bulk_actions": {
        "start": "change_members",
        "undo": "undo_bulk_action",
    },
    "composer": {
        "generate_metadata": "generate_metadata",
        "generate_tweets": "generate_tweets",
        "search_photos": "search_photos",
        "locate_photo_file": "locate_photo_file",
    },
    "credits": {
        "consume": "consume_credits",
        "read_balance": "read_balance",
        "read_ledger": "read_ledger",
        "read_low_balance": "read_low_balance",
        "set_low_balance": "set_low_balance",
        "read_prices": "read_prices",
        "topup": "topup_credits",
    },
    "deny_list": {
        "read": "read_deny_list",
        "replace": "replace_deny_list",
        "change": "change_deny_list",
    },
    "events": {
        "list": "list_events",
    },
    "exports": {
        "start": "export_list",
        "download": "download_export",
        "download_lines": "download_export_lines",
    },
    "fields": {
        "list": "list_fields",
        "create": "create_field",
        "change": "change_field",
        "retire": "retire_field",
    },
    "grants": {
        "list": "list_grants",
        "revoke": "revoke_grant",
    },
    "imports": {
        "start": "import_members",
        "list": "list_imports",
        "read": "read_import",
        "download_errors": "download_import_errors",
        "preview_undo": "preview_undo",
        "undo": "undo_import",
    },
    "jobs": {
        "list": "list_jobs",
        "read": "read_job",
        "cancel": "cancel_job",
        "retry": "retry_job",
        "stream_events": "stream_job_events",
    },
    "lists": {
        "create": "create_list",
        "list": "list_lists",
        "read": "read_list",
        "change": "change_list",
        "archive": "archive_list",
        "read_stats": "read_list_stats",
        "revoke_trace_ids": "revoke_trace_ids",
        "read_embedded_form": "read_embedded_form",
        "preview": "preview_list",
        "preview_changed": "preview_changed_list",
    },
    "mailings": {
        "list": "list_mailings",
        "read": "read_mailing",
    },
    "members": {
        "add": "add_members",
        "list": "list_members",
        "search": "search_members",
        "read": "read_member",
        "put": "put_member",
        "change": "change_member",
        "remove": "remove_member",
        "transfer": "transfer_member",
        "set_email_enabled": "set_member_email_enabled",
        "list_subscriptions": "list_member_subscriptions",
        "read_history": "read_member_history",
        "read_consent": "read_member_consent",
    },
    "oauth": {
        "issue_tokens": "issue_tokens",
        "revoke_token": "revoke_token",
        "introspect_token": "introspect_token",
        "read_userinfo": "read_userinfo",
        "read_metadata": "read_oauth_metadata",
    },
    "orders": {
        "claim": "claim_order",
        "list": "list_orders",
        "read": "read_order",
        "read_by_token": "read_order_by_token",
    },
    "segments": {
        "create": "create_segment",
        "list": "list_segments",
        "read": "read_segment",
        "change": "change_segment",
        "delete": "delete_segment",
    },
    "senders": {
        "create": "create_sender",
        "list": "list_senders",
        "read": "read_sender",
        "change": "change_sender",
        "delete": "delete_sender",
        "rotate_secret": "rotate_sender_secret",
        "list_reports": "list_sender_reports",
        "try_body": "try_sender_body",
        "report": "receive_reports",
    },
    "subscriptions": {
        "subscribe": "subscribe",
        "subscribe_me": "subscribe_me",
        "unsubscribe": "unsubscribe",
        "set_email_enabled": "set_email_enabled",
        "disable_email": "disable_email",
        "read": "read_my_subscription",
        "list": "list_my_subscriptions",
        "read_opponent": "read_opponent",
    },
    "tags": {
        "list": "list_tags",
        "rename": "rename_tag",
        "delete": "delete_tag",
    },
    "webhook_endpoints": {
        "create": "create_webhook_endpoint",
        "list": "list_webhook_endpoints",
        "read": "read_webhook_endpoint",
        "change": "change_webhook_endpoint",
        "delete": "delete_webhook_endpoint",
        "rotate_secret": "rotate_webhook_secret",
        "test": "test_webhook_endpoint",
        "replay_events": "replay_webhook_events",
        "list_deliveries": "list_webhook_deliveries",
        "resend_delivery": "resend_webhook_delivery",
    },
}

# The operations that only monitoring, browsers and payment providers call. The clients of 1.0.0
# have methods for these operations. The methods are deprecated, and release 2.0 removes them.
DEPRECATED_OPERATIONS = {
    "check_health",
    "check_readiness",
    "read_metrics",
    "read_service",
    "receive_stripe_webhook",
}


@dataclass(frozen=True)
class ResourceMethod:
    resource: str
    name: str
    operation: Operation

    @property
    def python_path(self) -> str:
        """Return the method's path from a Python client, such as ``api_keys.create``."""
        return f"{self.resource}.{self.name}"

    @property
    def typescript_path(self) -> str:
        """Return the method's path from a TypeScript client, such as ``apiKeys.create``."""
        return f"{to_camel_case(self.resource)}.{to_camel_case(self.name)}"


def group_operations(operations: Sequence[Operation]) -> list[ResourceMethod]:
    """Return the methods of all resources, in the order of ``RESOURCES``.

    Deprecated operations have no resource method. Raises ``ValueError`` unless ``RESOURCES`` names
    every other operation exactly once.
    """
    known = {operation.id: operation for operation in operations}
    names = [each for methods in RESOURCES.values() for each in methods.values()]
    names += DEPRECATED_OPERATIONS
    wrong_names = {each for each in names if names.count(each) > 1 or each not in known}
    wrong_names |= known.keys() - set(names)
    if wrong_names:
        raise ValueError(
            "clients/generator/resources.py must name each operation once: "
            + ", ".join(sorted(wrong_names))
        )
    return [
        ResourceMethod(resource, name, known[operation_id])
        for resource, methods in RESOURCES.items()
        for name, operation_id in methods.items()
    ]
