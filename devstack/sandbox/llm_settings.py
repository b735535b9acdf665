"""The language model's part of the sandbox, as the settings name it."""

from collections.abc import Mapping

SANDBOX_PREFIX = "/llm"
MODEL = "sandbox"
# Known to everybody: the sandbox listens on the loopback address and guards nothing.
SANDBOX_API_KEY = "sandbox-llm-key"


def sandbox_settings(sandbox_url: str, own: Mapping[str, str]) -> dict[str, str]:
    """Settings with which the user's own `LLM_PROVIDER=openai` means the sandbox.

    Without it the offline writer stays. A user who names a server or a key is left alone, so that
    a key never goes to a server that it isn't for.
    """
    names_a_server = {"PRESSROOM_LLM_BASE_URL", "PRESSROOM_LLM_API_KEY"} & own.keys()
    if own.get("PRESSROOM_LLM_PROVIDER") != "openai" or names_a_server:
        return {}
    return {
        "PRESSROOM_LLM_BASE_URL": base_url(sandbox_url),
        "PRESSROOM_LLM_API_KEY": SANDBOX_API_KEY,
        "PRESSROOM_LLM_MODEL": MODEL,
    }


def base_url(sandbox_url: str, run: str | None = None) -> str:
    """With a `run`, what is asked there is counted and steered apart from all else."""
    path = f"/runs/{run}/v1" if run else "/v1"
    return f"{sandbox_url}{SANDBOX_PREFIX}{path}"
