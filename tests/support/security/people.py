"""Creates people with different relations to a list, and requests about these people."""

import secrets
from typing import Any

from devstack.harness.stack import Owner, Stack
from services.subscriptions import lists


def new_list(stack: Stack, owner: Owner, **fields: Any) -> int:
    with stack.resources.unit_of_work() as uow:
        slug = f"quiet-{secrets.token_hex(6)}"
        mailing_list = lists.create_list(
            uow,
            account_id=owner.account_id,
            title="Quiet",
            slug=slug,
            fields={"confirm_required": False, **fields},
            providers=["turnstile"],
        )
        return mailing_list.id


# The method, the path and the body of a request.
Request = tuple[str, str, dict[str, Any] | None]
