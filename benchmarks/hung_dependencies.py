"""Makes a dependency of a stack hang while callers send API requests that need the dependency."""

import io
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache

import httpx2
from PIL import Image

from devstack.harness.proxy import Proxy
from devstack.harness.stack import Owner, Stack

METADATA = "/composer/metadata"
_PREFER = {"Prefer": "wait=5"}
_PAUSE_SECONDS = 0.1


@dataclass
class PressedStack:
    """A stack with a proxy in front of each dependency, and an owner whose API calls produce load.

    Attributes:
        confirmed_list_id: the id of a list with double opt-in, to which the benchmark subscribes
            people.
    """

    stack: Stack
    proxies: dict[str, Proxy]
    owner: Owner
    list_id: int
    confirmed_list_id: int
    media_path: str

    def client(self) -> httpx2.Client:
        return self.stack.client(self.owner.key)


@dataclass(frozen=True)
class Hang:
    """A dependency that hangs, and the API calls that need the dependency.

    Attributes:
        pressure: maps each API call to the number of callers that repeat it while the dependency
            hangs.
    """

    name: str
    proxy: str
    pressure: Mapping[str, int] = field(default_factory=dict)

    def begin(self, pressed: PressedStack) -> AbstractContextManager[None]:
        return pressed.proxies[self.proxy].misbehaving(Proxy.hang)


@contextmanager
def pressing(pressed: PressedStack, hang: Hang) -> Iterator[None]:
    """Keep sending API requests that need the hung dependency until the ``with`` block ends."""
    stop = threading.Event()

    def press(name: str) -> None:
        with pressed.client() as client:
            while not stop.is_set():
                with suppress(httpx2.HTTPError):
                    _CALLS[name](pressed, client)
                stop.wait(_PAUSE_SECONDS)

    names = [name for name, count in hang.pressure.items() for _ in range(count)]
    with ThreadPoolExecutor(len(names) or 1) as threads:
        callers = [threads.submit(press, name) for name in names]
        try:
            yield
        finally:
            stop.set()
    for caller in callers:
        caller.result()


@lru_cache
def create_photo(width: int = 640, height: int = 480) -> bytes:
    """Return a JPEG with gradients and noise, which compresses like a photograph."""
    picture = Image.merge(
        "RGB",
        [
            Image.linear_gradient("L").resize((width, height)),
            Image.radial_gradient("L").resize((width, height)),
            Image.effect_noise((width, height), 24),
        ],
    )
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=85)
    return buffer.getvalue()


def create_post() -> dict[str, str]:
    """Return a post with unique text, so that the composer's cache never contains its result."""
    return {
        "title": "How we bake bread",
        "content": "We bake bread every morning in a small shop. The flour comes from a mill by "
        "the river. The dough rests for a night, and the baker shapes the loaves at five. "
        f"Sourdough needs patience and warmth. Issue {time.monotonic_ns()}.",
    }


def _upload(_: PressedStack, client: httpx2.Client) -> httpx2.Response:
    files = {"file": ("photo.jpg", create_photo(320, 240))}
    return client.post("/attachments", files=files, headers=_PREFER)


def _compose(_: PressedStack, client: httpx2.Client) -> httpx2.Response:
    return client.post(METADATA, json=create_post(), headers=_PREFER)


def _search_photos(_: PressedStack, client: httpx2.Client) -> httpx2.Response:
    params = {"query": secrets.token_hex(4)}
    return client.get("/composer/unsplash/photos/search", params=params, headers=_PREFER)


def _subscribe_confirmed(pressed: PressedStack, client: httpx2.Client) -> httpx2.Response:
    body = {"email": f"{secrets.token_hex(8)}@example.com"}
    return client.post(f"/subscriptions/{pressed.confirmed_list_id}", json=body)


_CALLS: dict[str, Callable[[PressedStack, httpx2.Client], httpx2.Response]] = {
    "upload": _upload,
    "media": lambda pressed, client: client.get(pressed.media_path),
    "composer": _compose,
    "photo search": _search_photos,
    "confirmed subscribe": _subscribe_confirmed,
}
