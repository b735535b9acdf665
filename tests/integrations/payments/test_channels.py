import subprocess
import sys

import pytest

from core.errors import DomainError, Kind
from core.settings import Settings
from devstack.sandbox.sandbox_settings import build_payment_settings
from devstack.sandbox.stripe.objects import StripeKeys
from integrations.payments.port import PaymentChannel
from integrations.payments.registry import PaymentChannels
from tests.support.credits.payment_events import build_paid_session, sign_event
from tests.support.stack.given_settings import settings

STRIPE_SETTINGS = {"stripe_secret_key": "sk_test_real", "stripe_webhook_secret": "whsec_real"}


def build_sandbox_settings(
    stripe_keys: StripeKeys, url: str = "http://127.0.0.1:9/stripe"
) -> dict[str, str]:
    return {
        "payments_sandbox_url": url,
        "payments_sandbox_secret_key": stripe_keys.secret_key,
        "payments_sandbox_webhook_secret": stripe_keys.webhook_secret,
    }


def test_payment_channel_is_enabled_by_its_keys(stripe_keys: StripeKeys) -> None:
    assert PaymentChannels(settings()).configured == ()
    assert PaymentChannels(settings(**STRIPE_SETTINGS)).configured == (PaymentChannel.STRIPE,)
    assert PaymentChannels(settings(**build_sandbox_settings(stripe_keys))).configured == (
        PaymentChannel.SANDBOX,
    )


def test_stripe_takes_precedence_over_the_payment_sandbox(stripe_keys: StripeKeys) -> None:
    assert (
        PaymentChannels(settings(**build_sandbox_settings(stripe_keys))).default
        is PaymentChannel.SANDBOX
    )
    channels = PaymentChannels(settings(**STRIPE_SETTINGS, **build_sandbox_settings(stripe_keys)))
    assert channels.configured == (PaymentChannel.STRIPE, PaymentChannel.SANDBOX)
    assert channels.default is PaymentChannel.STRIPE
    assert [channels.channel(each).channel for each in PaymentChannel] == list(PaymentChannel)


def test_disabled_payment_channel_is_reported_as_unavailable_or_invalid(
    stripe_keys: StripeKeys,
) -> None:
    no_channels = PaymentChannels(settings())
    stripe_channels = PaymentChannels(settings(**STRIPE_SETTINGS))
    sandbox_channels = PaymentChannels(settings(**build_sandbox_settings(stripe_keys)))
    expected = [
        (no_channels, no_channels.default, Kind.UNAVAILABLE),
        (stripe_channels, PaymentChannel.SANDBOX, Kind.INVALID),
        (sandbox_channels, PaymentChannel.STRIPE, Kind.UNAVAILABLE),
    ]
    for channels, channel, kind in expected:
        with pytest.raises(DomainError) as error:
            channels.channel(channel)
        assert (error.value.code, error.value.kind) == ("topup.channel_unavailable", kind)


def test_payment_event_is_assigned_to_the_channel_whose_secret_signed_it(
    stripe_keys: StripeKeys,
) -> None:
    channels = PaymentChannels(settings(**STRIPE_SETTINGS, **build_sandbox_settings(stripe_keys)))
    stripe_signer = StripeKeys(webhook_secret=STRIPE_SETTINGS["stripe_webhook_secret"])
    for signer, channel in (
        (stripe_keys, PaymentChannel.SANDBOX),
        (stripe_signer, PaymentChannel.STRIPE),
    ):
        account, event = channels.parse_event(*sign_event(signer, build_paid_session()))
        assert account.channel is channel
        assert event.evidence is not None


def test_signed_body_without_payment_event_is_rejected_as_unreadable(
    stripe_keys: StripeKeys,
) -> None:
    channels = PaymentChannels(settings(**STRIPE_SETTINGS, **build_sandbox_settings(stripe_keys)))
    stripe_signer = StripeKeys(webhook_secret=STRIPE_SETTINGS["stripe_webhook_secret"])
    with pytest.raises(DomainError) as error:
        channels.parse_event(*sign_event(stripe_signer, b"{}"))
    assert error.value.code == "webhook.unreadable"


def test_payment_event_gets_unavailable_error_without_configured_channel(
    stripe_keys: StripeKeys,
) -> None:
    with pytest.raises(DomainError) as error:
        PaymentChannels(settings()).parse_event(*sign_event(stripe_keys, build_paid_session()))
    assert error.value.kind is Kind.UNAVAILABLE


@pytest.mark.tier("processes")
@pytest.mark.slow
def test_stripe_library_is_loaded_only_by_processes_that_handle_payments() -> None:
    script = (
        "import sys; import api.app, workers.main, integrations.payments.registry; "
        "assert 'stripe' not in sys.modules; "
        "import integrations.payments.stripe; assert 'stripe' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize(
    "channel_settings",
    [STRIPE_SETTINGS, build_sandbox_settings(StripeKeys())],
    ids=["stripe", "sandbox"],
)
def test_settings_of_a_payment_channel_must_be_set_together(
    channel_settings: dict[str, str],
) -> None:
    for missing in channel_settings:
        incomplete_settings = {
            name: value for name, value in channel_settings.items() if name != missing
        }
        with pytest.raises(ValueError, match=r"set (both|all three) or none"):
            settings(**incomplete_settings)


@pytest.mark.parametrize("host", ["sandbox.example.com", "10.0.0.1", "127.0.0.1.example.com"])
def test_payment_sandbox_on_another_machine_is_rejected(stripe_keys: StripeKeys, host: str) -> None:
    with pytest.raises(ValueError, match="must have the host"):
        settings(**build_sandbox_settings(stripe_keys, f"http://{host}/stripe"))


def test_devstack_generates_new_payment_keys_unless_the_user_set_them() -> None:
    first_settings = build_payment_settings("http://127.0.0.1:1", {})
    second_settings = build_payment_settings("", {})
    assert len({*first_settings.values(), *second_settings.values()}) == 6
    user_settings = {"PRESSROOM_PAYMENTS_SANDBOX_URL": "http://127.0.0.1:2"}
    assert build_payment_settings("http://127.0.0.1:1", user_settings) == {}
    stripe_settings = {"PRESSROOM_STRIPE_SECRET_KEY": "sk_test_real"}
    assert build_payment_settings("http://127.0.0.1:1", stripe_settings)
    names = {name.removeprefix("PRESSROOM_").lower() for name in first_settings}
    assert names <= set(Settings.model_fields)
