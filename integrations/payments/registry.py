"""The configured accounts at payment providers."""

from threading import Lock

from core.errors import DomainError
from core.errors import money as errors
from core.settings import Settings
from integrations.payments.port import Event, PaymentChannel, Payments


class PaymentChannels:
    """The payment channels that have API keys in the settings.

    Stripe's library is loaded only when a payment channel is used, because most processes handle no
    payments.
    """

    def __init__(self, given: Settings) -> None:
        stripe = (given.stripe_base_url, given.stripe_secret_key, given.stripe_webhook_secret)
        sandbox = (
            given.payments_sandbox_url,
            given.payments_sandbox_secret_key,
            given.payments_sandbox_webhook_secret,
        )
        accounts = {PaymentChannel.STRIPE: stripe, PaymentChannel.SANDBOX: sandbox}
        self._accounts = {
            channel: (str(url), key, secret)
            for channel, (url, key, secret) in accounts.items()
            if url and key and secret
        }
        self._opened: dict[PaymentChannel, Payments] = {}
        self._lock = Lock()

    @property
    def configured(self) -> tuple[PaymentChannel, ...]:
        return tuple(self._accounts)

    @property
    def default(self) -> PaymentChannel:
        """Return the channel for real payments, or the sandbox if only it is configured."""
        return next(iter(self._accounts), PaymentChannel.STRIPE)

    def channel(self, channel: PaymentChannel) -> Payments:
        if channel in self._accounts:
            with self._lock:
                if channel not in self._opened:
                    # Import the adapter late, because Stripe's library takes ten megabytes of
                    # memory.
                    from integrations.payments.stripe import StripeCheckout

                    url, key, secret = self._accounts[channel]
                    self._opened[channel] = StripeCheckout(
                        channel, base_url=url, secret_key=key, webhook_secret=secret
                    )
                return self._opened[channel]
        if channel is PaymentChannel.SANDBOX and self._accounts:
            raise errors.TOPUP_NO_SANDBOX()
        raise errors.TOPUP_CHANNEL_UNAVAILABLE(channel=channel)

    def parse_event(self, body: bytes, signature: str) -> tuple[Payments, Event]:
        """Return the account that signed a webhook, and the event in the webhook."""
        rejected: DomainError | None = None
        for channel in self._accounts:
            account = self.channel(channel)
            try:
                return account, account.parse_event(body, signature)
            except DomainError as error:
                if error.code != errors.WEBHOOK_SIGNATURE_INVALID.code:
                    raise
                rejected = error
        raise rejected or errors.TOPUP_NO_CHANNEL()
