"""What was asked in each run: a script that names a run counts only its own requests."""

from collections import Counter, OrderedDict, deque
from dataclasses import dataclass, field
from typing import Any

DEFAULT = "default"
_MAX_RUNS = 1000
_MAX_KEPT_REQUESTS = 20


@dataclass
class ModelRun:
    """The requests of one run.

    Attributes:
        model: the model that answers, whichever one a request names; None for the named one.
        left: the number of callers that hung up before they had their answer.
    """

    model: str | None = None
    calls: int = 0
    left: int = 0
    requests: deque[dict[str, Any]] = field(
        default_factory=lambda: deque(maxlen=_MAX_KEPT_REQUESTS)
    )
    _by_model: Counter[str] = field(default_factory=Counter)

    def note(self, body: dict[str, Any]) -> tuple[str, int]:
        """The model that answers, and how often this run has asked it, this request included."""
        model = self.model or str(body.get("model", ""))
        self.calls += 1
        self._by_model[model] += 1
        self.requests.append(body)
        return model, self._by_model[model]

    def shown(self) -> dict[str, object]:
        return {
            "model": self.model,
            "calls": self.calls,
            "left": self.left,
            "requests": list(self.requests),
        }


class ModelRuns:
    def __init__(self) -> None:
        self._runs: OrderedDict[str, ModelRun] = OrderedDict()

    def named(self, name: str) -> ModelRun:
        if name not in self._runs:
            self._runs[name] = ModelRun()
            if len(self._runs) > _MAX_RUNS:
                self._runs.popitem(last=False)
        return self._runs[name]

    def forget(self, name: str) -> None:
        self._runs.pop(name, None)
