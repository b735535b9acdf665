import subprocess
import sys

import pytest

from core.errors import DomainError, Kind
from core.settings import Settings
from devstack.sandbox.sandbox_settings import build_payment_settings
from devstack.sandbox.stripe.objects import StripeKeys
from integrations.payments.port import PaymentChannel
from integrations.payments.registry import PaymentChannels
from tests.support.credits.payment_events import a_paid_session, signed
from tests.support.stack.given_settings import settings

STRIPE = {"stripe_secret_key": "sk_test_real", "stripe_webhook_secret": "whsec_real"}


def of_sandbox(stripe_keys: StripeKeys, url: str = "http://127.0.0.1:9/stripe") -> dict[str, str]:
    return {
        "payments_sandbox_url": url,
        "payments_sandbox_secret_key": stripe_keys.secret_key,
        "payments_sandbox_webhook_secret": stripe_keys.webhook_secret,
    }


def test_payment_channel_is_enabled_by_its_keys(stripe_keys: StripeKeys) -> None:
    assert PaymentChannels(settings()).configured == ()
    assert PaymentChannels(settings(**STRIPE)).configured == (PaymentChannel.STRIPE,)
    assert PaymentChannels(settings(**of_sandbox(stripe_keys))).configured == (
        PaymentChannel.SANDBOX,
    )


def test_stripe_takes_precedence_over_the_payment_sandbox(stripe_keys: StripeKeys) -> None:
    assert PaymentChannels(settings(**of_sandbox(stripe_keys))).default is PaymentChannel.SANDBOX
    both = PaymentChannels(settings(**STRIPE, **of_sandbox(stripe_keys)))
    assert both.configured == (PaymentChannel.STRIPE, PaymentChannel.SANDBOX)
    assert both.default is PaymentChannel.STRIPE
    assert [both.channel(each).channel for each in PaymentChannel] == list(PaymentChannel)


def test_disabled_payment_channel_is_reported_as_unavailable_or_invalid(
    stripe_keys: StripeKeys,
) -> None:
    none, real = PaymentChannels(settings()), PaymentChannels(settings(**STRIPE))
    sandbox_channels = PaymentChannels(settings(**of_sandbox(stripe_keys)))
    expected = [
        (none, none.default, Kind.UNAVAILABLE),
        (real, PaymentChannel.SANDBOX, Kind.INVALID),
        (sandbox_channels, PaymentChannel.STRIPE, Kind.UNAVAILABLE),
    ]
    for channels, channel, kind in expected:
        with pytest.raises(DomainError) as caught:
            channels.channel(channel)
        assert (caught.value.code, caught.value.kind) == ("topup.channel_unavailable", kind)


def test_payment_event_is_assigned_to_the_channel_whose_secret_signed_it(
    stripe_keys: StripeKeys,
) -> None:
    channels = PaymentChannels(settings(**STRIPE, **of_sandbox(stripe_keys)))
    real = StripeKeys(webhook_secret=STRIPE["stripe_webhook_secret"])
    for signer, channel in ((stripe_keys, PaymentChannel.SANDBOX), (real, PaymentChannel.STRIPE)):
        account, event = channels.parse_event(*signed(signer, a_paid_session()))
        assert account.channel is channel
        assert event.evidence is not None


def test_signed_body_without_payment_event_is_rejected_as_unreadable(
    stripe_keys: StripeKeys,
) -> None:
    channels = PaymentChannels(settings(**STRIPE, **of_sandbox(stripe_keys)))
    real = StripeKeys(webhook_secret=STRIPE["stripe_webhook_secret"])
    with pytest.raises(DomainError) as caught:
        channels.parse_event(*signed(real, b"{}"))
    assert caught.value.code == "webhook.unreadable"


def test_payment_event_gets_unavailable_error_without_configured_channel(
    stripe_keys: StripeKeys,
) -> None:
    with pytest.raises(DomainError) as caught:
        PaymentChannels(settings()).parse_event(*signed(stripe_keys, a_paid_session()))
    assert caught.value.kind is Kind.UNAVAILABLE


@pytest.mark.tier("processes")
@pytest.mark.slow
def test_stripe_library_is_loaded_only_by_processes_that_handle_payments() -> None:
    check = (
        "import sys; import api.app, workers.main, integrations.payments.registry; "
        "assert 'stripe' not in sys.modules; "
        "import integrations.payments.stripe; assert 'stripe' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", check], check=True)


@pytest.mark.parametrize("all_of", [STRIPE, of_sandbox(StripeKeys())], ids=["stripe", "sandbox"])
def test_settings_of_a_payment_channel_must_be_set_together(all_of: dict[str, str]) -> None:
    for missing in all_of:
        given = {name: value for name, value in all_of.items() if name != missing}
        with pytest.raises(ValueError, match=r"set (both|all three) or none"):
            settings(**given)


@pytest.mark.parametrize("host", ["sandbox.example.com", "10.0.0.1", "127.0.0.1.example.com"])
def test_payment_sandbox_on_another_machine_is_rejected(stripe_keys: StripeKeys, host: str) -> None:
    with pytest.raises(ValueError, match="must have the host"):
        settings(**of_sandbox(stripe_keys, f"http://{host}/stripe"))


def test_devstack_generates_new_payment_keys_unless_the_user_set_them() -> None:
    first, second = build_payment_settings("http://127.0.0.1:1", {}), build_payment_settings("", {})
    assert len({*first.values(), *second.values()}) == 6
    own = {"PRESSROOM_PAYMENTS_SANDBOX_URL": "http://127.0.0.1:2"}
    assert build_payment_settings("http://127.0.0.1:1", own) == {}
    stripe = {"PRESSROOM_STRIPE_SECRET_KEY": "sk_test_real"}
    assert build_payment_settings("http://127.0.0.1:1", stripe)
    names = {name.removeprefix("PRESSROOM_").lower() for name in first}
    assert names <= set(Settings.model_fields)
