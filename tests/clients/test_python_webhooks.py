import json
from types import ModuleType

import pytest

from tests.clients import signed_messages
from tests.clients.signed_messages import BODY, SECRET, SPECIFIED


def test_the_example_of_the_specification_verifies(package: ModuleType) -> None:
    message = package.verify_webhook(SECRET, SPECIFIED, BODY, tolerance=float("inf"))
    assert message == json.loads(BODY)


@pytest.mark.parametrize("case", signed_messages.messages(), ids=lambda case: str(case["name"]))
def test_a_message_is_believed_only_if_its_signature_is_right(
    package: ModuleType, case: dict[str, object]
) -> None:
    body = str(case["body"])
    for sent in (body, body.encode()):
        if case["ok"]:
            verified = package.verify_webhook(case["secrets"], case["headers"], sent)
            assert verified == json.loads(body)
        else:
            with pytest.raises(package.WebhookInvalid):
                package.verify_webhook(case["secrets"], case["headers"], sent)


def test_a_secret_that_is_none_is_a_mistake_of_the_program(package: ModuleType) -> None:
    with pytest.raises(ValueError, match="whsec_"):
        package.verify_webhook("secret!", signed_messages.signed(), BODY)
