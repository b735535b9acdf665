import pytest

from core.errors import SettingsError
from core.settings import Settings
from core.settings.given_settings import read_values
from core.settings.plan_contact import PlanContact

URL = "https://news.example:8443/plans?from=console#paid"


@pytest.mark.parametrize(
    ("text", "contact"),
    [
        ("plans@news.example", PlanContact("plans@news.example", "mailto:plans@news.example")),
        # Without percent encoding, a mail program would read the text after "?" as mail headers.
        ("a?b&c@x.example", PlanContact("a?b&c@x.example", "mailto:a%3Fb%26c@x.example")),
        (URL, PlanContact(None, URL)),
    ],
)
def test_plan_contact_is_an_address_or_an_https_url(text: str, contact: PlanContact) -> None:
    assert PlanContact.parse(text) == contact


@pytest.mark.parametrize(
    "text",
    [
        "the operator",
        "Sales <plans@news.example>",
        "mailto:plans@news.example",
        "http://news.example/plans",
        "javascript:alert(1)",
        "https://",
        "https://news.example:99999/",
        "https://me:secret@news.example/",
        "https://news.example/two words",
    ],
)
def test_process_refuses_another_plan_contact_and_says_what_is_allowed(text: str) -> None:
    with pytest.raises(SettingsError, match=r"PRESSROOM_PLAN_CONTACT: must be .* https:// URL"):
        read_values(Settings, {"plan_contact": text})
