"""The accounts at payment providers that the settings name."""

from threading import Lock

from core.errors import DomainError
from core.errors import money as errors
from core.settings import Settings
from integrations.payments.port import Event, PaymentChannel, Payments


class PaymentChannels:
    """The channels for which the settings have keys; make it once a process.

    It costs nothing until a payment: Stripe's library is loaded at the first use.
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
        """Real money where there is an account for it; raises as ``channel`` does for none."""
        return next(iter(self._accounts), PaymentChannel.STRIPE)

    def channel(self, channel: PaymentChannel) -> Payments:
        """The channel's account.

        Raises ``topup.channel_unavailable``: invalid for the sandbox, which is part of the
        development stack alone, unavailable for one that the operator can set up.
        """
        if channel in self._accounts:
            with self._lock:
                if channel not in self._opened:
                    # Imported late: it takes ten megabytes, in each process, most of which never
                    # see money.
                    from integrations.payments.stripe import StripeCheckout

                    url, key, secret = self._accounts[channel]
                    self._opened[channel] = StripeCheckout(
                        channel, base_url=url, secret_key=key, webhook_secret=secret
                    )
                return self._opened[channel]
        if channel is PaymentChannel.SANDBOX and self._accounts:
            raise errors.TOPUP_NO_SANDBOX()
        raise errors.TOPUP_CHANNEL_UNAVAILABLE(channel=channel)

    def event(self, body: bytes, signature: str) -> tuple[Payments, Event]:
        """Read a webhook of the account that it is signed for; raises as ``Payments.event``."""
        rejected: DomainError | None = None
        for channel in self._accounts:
            account = self.channel(channel)
            try:
                return account, account.event(body, signature)
            except DomainError as error:
                if error.code != errors.WEBHOOK_SIGNATURE_INVALID.code:
                    raise
                rejected = error
        raise rejected or errors.TOPUP_NO_CHANNEL()
