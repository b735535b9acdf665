"""Groups the operations of the API by resource, for the clients of all languages.

A client calls the operation ``create_list`` as ``client.lists.create``.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from clients.generator.operations import Operation, to_camel_case

# Finds the resource in the name of an operation, for example ``list`` in ``create_list``.
_RESOURCE = re.compile(
    r"([a-z]+)_(?:my_)?"
    r"(api_key|attachment|bulk_action|credit|deny_list|event|export|field|grant|import|job|list"
    r"|mailing|member|oauth|order|segment|sender|subscription|tag|webhook_endpoint|webhook)s?"
    r"(_.+)?"
)
# The methods whose names differ from the names of their operations. The names of released methods
# must stay.
_SPECIAL_METHODS = {
    "change_me": "account.change",
    "change_members": "bulk_actions.start",
    "create_deliveries": "deliveries.create",
    "download_media": "attachments.download",
    "export_list": "exports.start",
    "import_members": "imports.start",
    "preview_changed_list": "lists.preview_changed",
    "preview_undo": "imports.preview_undo",
    "read_me": "account.read",
    "receive_reports": "senders.report",
    "revoke_trace_ids": "lists.revoke_trace_ids",
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
    """Return the methods of all operations that aren't deprecated, ordered by resource.

    Raises ``ValueError`` if two operations would be the same method.
    """
    methods = [_find_method(each) for each in operations if each.id not in DEPRECATED_OPERATIONS]
    uses = Counter(method.python_path for method in methods)
    repeated_paths = sorted(path for path, count in uses.items() if count > 1)
    if repeated_paths:
        raise ValueError(f"operations share a method: {', '.join(repeated_paths)}")
    return sorted(methods, key=lambda method: method.resource)


def _find_method(operation: Operation) -> ResourceMethod:
    if path := _SPECIAL_METHODS.get(operation.id):
        resource, name = path.split(".")
        return ResourceMethod(resource, name, operation)
    if found := _RESOURCE.fullmatch(operation.id):
        verb, noun, rest = found.groups()
        irregular = {"deny_list": noun, "oauth": noun, "webhook": "webhook_endpoints"}
        resource = irregular.get(noun, f"{noun}s")
        return ResourceMethod(resource, verb + (rest or ""), operation)
    tag = operation.tag.lower().replace(" ", "_")
    return ResourceMethod("account" if tag == "accounts" else tag, operation.id, operation)
