import secrets
from dataclasses import dataclass, field


@dataclass
class StripeKeys:
    """Keys that Pressroom and the stand-in share. Without a webhook URL, events go nowhere."""

    secret_key: str = field(default_factory=lambda: f"sk_test_{secrets.token_hex(24)}")
    webhook_secret: str = field(default_factory=lambda: f"whsec_{secrets.token_hex(24)}")
    webhook_url: str | None = None
