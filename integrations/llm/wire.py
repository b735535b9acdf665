"""One request to a server of OpenAI's protocol, and its reply as bytes.

The library knows the protocol; what it leaves open is settled here: no redirects, cookies, proxies
or retries, no variables of the environment, and no more of a reply than an answer can be.
"""

import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from typing import Any, NoReturn

import httpx2
import openai
from pydantic import SecretStr

from integrations.llm.failure import CallOutcome, Failure, RequestRejected, retry_after

_CONNECT_SECONDS = 5.0
_MAX_REPLY_BYTES = 1024 * 1024
_MAX_REASON_CHARACTERS = 2000

_NOT_TAKEN = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY})
_OVERLOADED = 529
_BUSY = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE, _OVERLOADED})


@dataclass(frozen=True)
class Target:
    base_url: str
    api_key: SecretStr | None


async def send(target: Target, body: dict[str, Any], seconds: float) -> bytes:
    """The body of a reply with status 200.

    Raises ``Failure``, or ``RequestRejected`` when it is the request that the server finds wrong.
    """
    async with _client(target, seconds) as client:
        try:
            reply = await client.chat.completions.with_raw_response.create(
                **body, extra_headers=_headers(target)
            )
        except openai.APIStatusError as error:
            _raise_status(error)
        except openai.APITimeoutError:
            raise Failure("timeout", CallOutcome.TOO_SLOW) from None
        except openai.APIConnectionError as error:
            raise _unconnected(error.__cause__) from None
        except openai.OpenAIError as error:
            raise Failure(type(error).__name__) from None
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError) as error:
            raise _unconnected(error) from None
        return bytes(reply.content)


def _client(target: Target, seconds: float) -> openai.AsyncOpenAI:
    timeout = httpx2.Timeout(seconds, connect=min(seconds, _CONNECT_SECONDS))
    return openai.AsyncOpenAI(
        api_key=target.api_key.get_secret_value() if target.api_key else "none",
        base_url=target.base_url,
        max_retries=0,
        timeout=timeout,
        http_client=httpx2.AsyncClient(
            transport=_Bounded(), timeout=timeout, follow_redirects=False, trust_env=False
        ),
    )


def _headers(target: Target) -> dict[str, Any]:
    # The library takes these two from the environment, which says nothing about this server.
    left_out = {"OpenAI-Organization": openai.Omit(), "OpenAI-Project": openai.Omit()}
    if target.api_key is None:
        left_out["Authorization"] = openai.Omit()
    return {"Accept-Encoding": "identity", **left_out}


def _raise_status(error: openai.APIStatusError) -> NoReturn:
    status = error.status_code
    if status in _NOT_TAKEN:
        raise RequestRejected(
            status, error.response.text[:_MAX_REASON_CHARACTERS].lower()
        ) from None
    outcome = CallOutcome.UNAVAILABLE if status in _BUSY else CallOutcome.FAILED
    raise Failure(
        f"status {status}",
        outcome,
        may_pass=status in _BUSY or status >= HTTPStatus.INTERNAL_SERVER_ERROR,
        retry_after=retry_after(error.response.headers.get("Retry-After")),
    ) from None


def _unconnected(cause: BaseException | None) -> Failure:
    if isinstance(cause, _Unbounded):
        return Failure(str(cause))
    if isinstance(cause, httpx2.ConnectError):
        return Failure("no connection", CallOutcome.UNAVAILABLE)
    return Failure(f"broken reply ({type(cause).__name__})")


class _Unbounded(httpx2.ReadError):
    """A reply that would be more than an answer can be."""


class _Bounded(httpx2.AsyncHTTPTransport):
    def __init__(self) -> None:
        super().__init__(verify=_trusted(), trust_env=False)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        reply = await super().handle_async_request(request)
        # Few compressed bytes can be many: what was asked for is identity.
        if reply.headers.get("Content-Encoding", "identity").strip().lower() != "identity":
            await reply.aclose()
            raise _Unbounded("compressed reply")
        return httpx2.Response(
            reply.status_code,
            headers=reply.headers,
            stream=_Counted(reply),
            extensions=reply.extensions,
        )


class _Counted(httpx2.AsyncByteStream):
    def __init__(self, reply: httpx2.Response) -> None:
        self._reply = reply

    async def __aiter__(self) -> AsyncIterator[bytes]:
        length = 0
        async for part in self._reply.aiter_raw():
            length += len(part)
            if length > _MAX_REPLY_BYTES:
                raise _Unbounded("reply too long")
            yield part

    async def aclose(self) -> None:
        await self._reply.aclose()


@cache
def _trusted() -> ssl.SSLContext:
    # Reading the system's authorities takes longer than the rest of a client.
    return ssl.create_default_context()
