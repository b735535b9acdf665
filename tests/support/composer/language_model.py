"""Questions to the sandbox's language model, each test's counted apart."""

import json
import uuid
from dataclasses import dataclass, field
from typing import Any

import httpx2
from pydantic import SecretStr

from devstack.sandbox.sandbox_settings import LLM_PREFIX
from integrations.llm import openai_protocol
from integrations.llm.openai_protocol import LlmServerState, OpenAIProtocol
from integrations.llm.port import CompletionRequest, Usage

KEY = "sk-never-to-be-seen-0123456789"
PRIVATE = "Zanzibar"
SCHEMA = {
    "type": "object",
    "properties": {"summary": {"type": "string"}},
    "required": ["summary"],
    "additionalProperties": False,
}


def ignore_usage(_: Usage) -> None: ...


@dataclass
class Run:
    """One run in the sandbox, and what a process has learnt about its server."""

    sandbox: str
    name: str = field(default_factory=lambda: uuid.uuid4().hex)
    server: LlmServerState = field(default_factory=LlmServerState)
    usages: list[Usage] = field(default_factory=list)

    @property
    def base_url(self) -> str:
        return f"{self.sandbox}{LLM_PREFIX}/runs/{self.name}/v1"

    def model(
        self, behaviour: str = "", *, key: str | None = KEY, context_tokens: int = 32_000
    ) -> OpenAIProtocol:
        """The sandbox's model that behaves so: `prose`, `500-once`…; by default it is right."""
        return OpenAIProtocol(
            openai_protocol.Target(self.base_url, SecretStr(key) if key else None),
            self.server,
            model=f"sandbox-{behaviour}" if behaviour else "sandbox",
            context_tokens=context_tokens,
            report=self.usages.append,
        )

    def steer(self, behaviour: str | None) -> None:
        model = f"sandbox-{behaviour}" if behaviour else None
        self._asked("PUT", json={"model": model})

    @property
    def calls(self) -> int:
        return int(self._shown()["calls"])

    @property
    def left(self) -> int:
        return int(self._shown()["left"])

    @property
    def requests(self) -> list[dict[str, Any]]:
        """The last twenty, oldest first; their headers are under `_headers`."""
        found: list[dict[str, Any]] = self._shown()["requests"]
        return found

    @property
    def forms(self) -> list[str]:
        return [
            (each.get("response_format") or {"type": "prompt"})["type"] for each in self.requests
        ]

    @property
    def _control(self) -> str:
        return self.base_url.removesuffix("/v1")

    def _shown(self) -> dict[str, Any]:
        shown: dict[str, Any] = self._asked("GET").json()
        return shown

    def _asked(self, method: str, **content: Any) -> httpx2.Response:
        # To read certificates takes longer than most of these tests, and this is plain HTTP.
        with httpx2.Client(trust_env=False, verify=False) as client:
            return client.request(method, self._control, **content).raise_for_status()


def question(seconds: float = 20.0) -> CompletionRequest:
    return CompletionRequest(
        instructions="Sum it up.",
        material=f"<post>\nTitle: {PRIVATE}\n\nBees live in {PRIVATE}. They make honey.\n</post>",
        schema=SCHEMA,
        schema_name="summary",
        max_tokens=500,
        seconds=seconds,
    )


def answered(text: str) -> str:
    return str(json.loads(text)["summary"])
