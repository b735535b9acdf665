"""The language model that the settings name."""

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
    """The settings' language model, the same one each time; None when there is none to ask.

    All threads of the process share the facts that it has learnt about its server. The first call
    of the process also says who hears of each use.
    """
    if given.llm_provider == "offline" or given.llm_model is None:
        return None
    # The library takes its time to import, which processes that ask nothing are spared.
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
