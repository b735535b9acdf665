"""Sends requests to a FastAPI application in the test's process, without an HTTP server."""

import asyncio

import httpx2
from fastapi import FastAPI

from devstack.sandbox.app import SandboxProvider, create_app


def call_app(app: FastAPI, method: str, path: str, **content: object) -> httpx2.Response:
    async def send_request() -> httpx2.Response:
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.request(method, path, **content)  # type: ignore[arg-type]

    return asyncio.run(send_request())


def fetch_page(path: str, *providers: SandboxProvider, host: str = "localhost") -> httpx2.Response:
    """Return a page of a sandbox that contains only the given fake providers."""
    return call_app(create_app(providers), "GET", f"http://{host}{path}")
