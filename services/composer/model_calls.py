"""Calls a language model about one post, with a time limit for all calls together."""

import time

from integrations.llm.port import CompletionRequest, LanguageModel
from services.composer.model_answers import remove_drafts
from services.composer.prompts import FRAME, PromptSpec, delimit_text

MAX_CALL_SECONDS = 20.0
# The model is called only if at least this much time is left. A call with less time would probably
# time out and waste tokens.
MIN_CALL_SECONDS = 1.0


class ModelCalls:
    def __init__(self, llm: LanguageModel, seconds: float) -> None:
        self.context_tokens = llm.context_tokens
        self._llm = llm
        self._ends_at = time.monotonic() + seconds

    @property
    def seconds_left(self) -> float:
        return self._ends_at - time.monotonic()

    def ask(
        self,
        prompt: PromptSpec,
        material: str,
        *,
        max_tokens: int,
        seconds: float,
        repair: tuple[str, str] = ("", ""),
    ) -> str:
        """Return the answer without drafts.

        The first text of ``repair`` is added to the instructions, and the second to the material.
        """
        mark, delimited = delimit_text(material)
        request = CompletionRequest(
            instructions=FRAME.format(mark=mark, task=prompt.text) + repair[0],
            material=delimited + repair[1],
            schema=prompt.schema,
            schema_name=prompt.schema_name,
            max_tokens=max_tokens,
            seconds=min(seconds, MAX_CALL_SECONDS),
        )
        return remove_drafts(self._llm.ask(request).text)
