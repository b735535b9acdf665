"""The webhooks that came, in memory alone, newest last, and the secrets that check them."""

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count

from standardwebhooks import Webhook, WebhookVerificationError

MAX_HOOKS = 200
MAX_HOOK_BYTES = 256 * 1024
MAX_SECRETS = 100


@dataclass(frozen=True)
class StoredHook:
    """
    Attributes:
        name: the last part of the URL that it came to.
        message_id: the same at each try.
        attempt: of this message to this name, from 1 on.
        signature: what became of the check: ``right``, ``wrong: …`` or ``no secret``.
        status: what it was answered.
    """

    id: int
    name: str
    received_at: datetime
    message_id: str
    attempt: int
    signature: str
    status: int
    body: str


class HookBox:
    def __init__(self) -> None:
        self._hooks: deque[StoredHook] = deque(maxlen=MAX_HOOKS)
        self._secrets: dict[str, str] = {}
        self._attempts: Counter[tuple[str, str]] = Counter()
        self._ids = count(1)

    def set_secret(self, name: str, secret: str) -> None:
        """Check what comes to this name by the secret; raises ``ValueError`` for none."""
        Webhook(secret)
        if len(self._secrets) >= MAX_SECRETS:
            self._secrets.pop(next(iter(self._secrets)))
        self._secrets[name] = secret

    def attempt_of(self, name: str, message_id: str) -> int:
        """Count a try of this message."""
        if len(self._attempts) > MAX_HOOKS * 10:
            self._attempts.clear()
        self._attempts[name, message_id] += 1
        return self._attempts[name, message_id]

    def keep(
        self, name: str, headers: Mapping[str, str], body: bytes, *, attempt: int, status: int
    ) -> StoredHook:
        hook = StoredHook(
            id=next(self._ids),
            name=name,
            received_at=datetime.now(UTC),
            message_id=headers.get("webhook-id", ""),
            attempt=attempt,
            signature=self._verdict(name, headers, body),
            status=status,
            body=body.decode(errors="replace"),
        )
        self._hooks.append(hook)
        return hook

    def newest_first(self, name: str = "") -> list[StoredHook]:
        return [each for each in reversed(self._hooks) if name in ("", each.name)]

    def remove(self, name: str = "") -> int:
        """Forget what came to this name, or all; return how many there were."""
        gone = self.newest_first(name)
        kept = [each for each in self._hooks if each not in gone]
        self._hooks = deque(kept, maxlen=MAX_HOOKS)
        return len(gone)

    def _verdict(self, name: str, headers: Mapping[str, str], body: bytes) -> str:
        secret = self._secrets.get(name)
        if secret is None:
            return "no secret"
        try:
            Webhook(secret).verify(body, dict(headers), json_parse=False)
        except (WebhookVerificationError, ValueError) as error:
            return f"wrong: {error}"
        return "right"
