"""The configured language model."""

import threading
from typing import TYPE_CHECKING

from core.settings import Settings
from integrations.llm.port import LanguageModel, Report

if TYPE_CHECKING:
    from integrations.llm.openai_protocol import LlmServerState

_lock = threading.Lock()
_models: dict[tuple[object, ...], LanguageModel] = {}
_servers: dict[str, "LlmServerState"] = {}


def language_model(given: Settings, report: Report) -> LanguageModel | None:
    """Return the configured language model, or ``None`` if no model is configured.

    All threads of a process share the model and the state of its server. If the process already has
    a model with the same settings, ``report`` is ignored.
    """
    if given.llm_provider == "offline" or given.llm_model is None:
        return None
    # Import the adapter late, because it loads a slow library that processes without a language
    # model don't need.
    from integrations.llm import openai_protocol

    url = str(given.llm_base_url)
    key = (url, given.llm_api_key, given.llm_model, given.llm_context_tokens)
    with _lock:
        if key not in _models:
            _models[key] = openai_protocol.OpenAIProtocol(
                openai_protocol.Target(url, given.llm_api_key),
                _servers.setdefault(url, openai_protocol.LlmServerState()),
                given.llm_model,
                given.llm_context_tokens,
                report,
            )
        return _models[key]
