"""Sends requests to the sandbox's language model, which counts the requests of each test."""

import uuid
from dataclasses import dataclass, field
from typing import Any

import httpx2
from pydantic import SecretStr

from devstack.sandbox.sandbox_settings import LLM_PREFIX
from integrations.llm import openai_protocol
from integrations.llm.openai_protocol import LlmServerState, OpenAIProtocol
from integrations.llm.port import CompletionRequest, Usage

API_KEY = "sk-never-to-be-seen-0123456789"
PRIVATE_WORD = "Zanzibar"
SCHEMA = {
    "type": "object",
    "properties": {"summary": {"type": "string"}},
    "required": ["summary"],
    "additionalProperties": False,
}


def ignore_usage(_: Usage) -> None: ...


@dataclass
class LanguageModelRun:
    """The requests of one test to the sandbox's language model.

    Attributes:
        sandbox: the URL of the sandbox.
        name: the name under which the sandbox counts the requests.
        server: what the client has learnt about the server, such as the formats that it supports.
    """

    sandbox: str
    name: str = field(default_factory=lambda: uuid.uuid4().hex)
    server: LlmServerState = field(default_factory=LlmServerState)
    usages: list[Usage] = field(default_factory=list)

    @property
    def base_url(self) -> str:
        return f"{self.sandbox}{LLM_PREFIX}/runs/{self.name}/v1"

    def model(
        self, behaviour: str = "", *, key: str | None = API_KEY, context_tokens: int = 32_000
    ) -> OpenAIProtocol:
        """Return a client of the sandbox's language model.

        ``behaviour``: how the language model responds. For example, with `500-once`, the first
        response has the status 500. By default, the language model responds correctly.
        """
        return OpenAIProtocol(
            openai_protocol.Target(self.base_url, SecretStr(key) if key else None),
            self.server,
            model=f"sandbox-{behaviour}" if behaviour else "sandbox",
            context_tokens=context_tokens,
            report=self.usages.append,
        )

    def steer(self, behaviour: str | None) -> None:
        """Make the sandbox's language model respond to all requests in the same way.

        If ``behaviour`` is ``None``, the model name in each request determines the response.
        """
        model = f"sandbox-{behaviour}" if behaviour else None
        self._call_control("PUT", json={"model": model})

    @property
    def calls(self) -> int:
        return int(self._read_state()["calls"])

    @property
    def left(self) -> int:
        """Return how many callers closed the connection before they got the response."""
        return int(self._read_state()["left"])

    @property
    def requests(self) -> list[dict[str, Any]]:
        """Return the last twenty requests, oldest first.

        Each item of the list is a request's JSON body, with the HTTP headers added as `_headers`.
        """
        requests: list[dict[str, Any]] = self._read_state()["requests"]
        return requests

    @property
    def forms(self) -> list[str]:
        """Return the ``response_format`` types of the last twenty requests to the language model.

        A request without ``response_format`` has the type ``prompt``.
        """
        return [
            (each.get("response_format") or {"type": "prompt"})["type"] for each in self.requests
        ]

    @property
    def _control_url(self) -> str:
        return self.base_url.removesuffix("/v1")

    def _read_state(self) -> dict[str, Any]:
        state: dict[str, Any] = self._call_control("GET").json()
        return state

    def _call_control(self, method: str, **content: Any) -> httpx2.Response:
        # Don't load certificates, because the URL is plain HTTP, and because loading certificates
        # takes longer than most tests.
        with httpx2.Client(trust_env=False, verify=False) as client:
            return client.request(method, self._control_url, **content).raise_for_status()


def build_question(seconds: float = 20.0) -> CompletionRequest:
    post = f"Title: {PRIVATE_WORD}\n\nBees live in {PRIVATE_WORD}. They make honey."
    return CompletionRequest(
        instructions="Sum it up.",
        material=f"<post>\n{post}\n</post>",
        schema=SCHEMA,
        schema_name="summary",
        max_tokens=500,
        seconds=seconds,
    )
