import secrets
from dataclasses import dataclass, field


@dataclass
class StripeKeys:
    """What both sides know. Without a webhook URL events are kept, and go nowhere."""

    secret_key: str = field(default_factory=lambda: f"sk_test_{secrets.token_hex(24)}")
    webhook_secret: str = field(default_factory=lambda: f"whsec_{secrets.token_hex(24)}")
    webhook_url: str | None = None
