import json
from types import ModuleType

import pytest

from tests.clients import signed_messages
from tests.clients.signed_messages import BODY, SECRET, SPECIFIED


def test_the_example_of_the_specification_verifies(package: ModuleType) -> None:
    message = package.verify_webhook(SECRET, SPECIFIED, BODY, tolerance=float("inf"))
    assert message == json.loads(BODY)


# Made anew by each test, since they have the time in them.
@pytest.mark.parametrize("name", [case["name"] for case in signed_messages.messages()])
def test_a_message_is_believed_only_if_its_signature_is_right(
    package: ModuleType, name: str
) -> None:
    (case,) = (each for each in signed_messages.messages() if each["name"] == name)
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
