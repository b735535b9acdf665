"""Runs the sandbox's simulation of Amazon SNS, with faults that a test chooses."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property

from fastapi import FastAPI, Request, Response

from devstack.sandbox.senders import amazon_sns
from devstack.sandbox.senders.amazon_sns import SigningCertificates, SnsServer, create_certificates
from tests.support.http.servers import serving_app


@dataclass
class FaultySns:
    """A simulation of Amazon SNS that can send wrong or late replies.

    Attributes:
        base_url: the value of the setting ``PRESSROOM_SNS_BASE_URL``.
        paths: the paths of all requests, in order.
        queries: the query strings of all requests, in the same order as ``paths``.
        replies: maps a path to the reply that is sent instead of the correct reply.
        slow_paths: replies for these paths take longer than Pressroom waits.
    """

    server: SnsServer = field(default_factory=SnsServer)
    base_url: str = ""
    paths: list[str] = field(default_factory=list)
    queries: list[str] = field(default_factory=list)
    replies: dict[str, Response] = field(default_factory=dict)
    slow_paths: set[str] = field(default_factory=set)

    @cached_property
    def certificates(self) -> SigningCertificates:
        return create_certificates()

    def reset(self) -> None:
        self.server.certificates = self.certificates
        for collection in (self.paths, self.queries, self.server.confirmed_topics):
            collection.clear()
        self.replies.clear()
        self.slow_paths.clear()


@contextmanager
def run_sns() -> Iterator[FaultySns]:
    sns = FaultySns()
    app = FastAPI()
    app.include_router(amazon_sns.build_router(sns.server), prefix="/sns")

    @app.middleware("http")
    async def answer(
        request: Request, forward: Callable[[Request], Awaitable[Response]]
    ) -> Response:
        path = request.url.path.removeprefix("/sns")
        sns.paths.append(path)
        sns.queries.append(request.url.query)
        if path in sns.slow_paths:
            await asyncio.sleep(0.5)
        return sns.replies.get(path) or await forward(request)

    with serving_app(app) as url:
        sns.base_url = f"{url}/sns"
        yield sns
