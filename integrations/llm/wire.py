"""One request to a server of OpenAI's protocol, and its reply as bytes.

The library knows the protocol. It gets our bounded client, no retries, and none of its variables of
the environment.
"""

from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import httpx2
import openai
from pydantic import SecretStr

from core.telemetry import spans
from integrations import http_client
from integrations.llm.failure import CallOutcome, Failure, RequestRejected

_MAX_CONNECT_SECONDS = 5.0
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
    # The library takes these two from the environment, which says nothing about this server.
    left_out = ["OpenAI-Organization", "OpenAI-Project"]
    left_out += [] if target.api_key else ["Authorization"]
    headers: dict[str, Any] = {name: openai.Omit() for name in left_out}
    bounds = http_client.HttpBounds(seconds, _MAX_CONNECT_SECONDS, _MAX_REPLY_BYTES)
    async with openai.AsyncOpenAI(
        api_key=target.api_key.get_secret_value() if target.api_key else "none",
        base_url=target.base_url,
        max_retries=0,
        timeout=bounds.timeout,
        http_client=http_client.async_library_client(bounds),
    ) as client:
        try:
            create = client.chat.completions.with_raw_response.create
            with http_client.call_span("POST", target.base_url):
                spans.note({"gen_ai.request.model": body["model"]})
                reply = await create(**body, extra_headers=headers)
        except openai.APIStatusError as error:
            raise _verdict(error) from None
        except openai.APITimeoutError:
            raise Failure("timeout", CallOutcome.TOO_SLOW) from None
        except openai.APIConnectionError as error:
            raise _unconnected(error.__cause__) from None
        except openai.OpenAIError as error:
            raise Failure(type(error).__name__) from None
        except (http_client.HttpFailure, httpx2.InvalidURL, httpx2.StreamError) as error:
            raise _unconnected(error) from None
        return bytes(reply.content)


def _verdict(error: openai.APIStatusError) -> Failure | RequestRejected:
    status, reply = error.status_code, error.response
    if status in _NOT_TAKEN:
        return RequestRejected(status, reply.text[:_MAX_REASON_CHARACTERS].lower())
    return Failure(
        f"status {status}",
        CallOutcome.UNAVAILABLE if status in _BUSY else CallOutcome.FAILED,
        may_pass=status in _BUSY or status >= HTTPStatus.INTERNAL_SERVER_ERROR,
        retry_after=http_client.retry_after(reply.headers.get("Retry-After")),
    )


def _unconnected(cause: BaseException | None) -> Failure:
    if isinstance(cause, http_client.ReplyRefused):
        return Failure(str(cause))
    if isinstance(cause, httpx2.ConnectError):
        return Failure("no connection", CallOutcome.UNAVAILABLE)
    return Failure(f"broken reply ({type(cause).__name__})")
