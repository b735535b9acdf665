"""Recognises the user agents of bots, such as mail scanners and crawlers."""

import tomllib
from pathlib import Path

_MAX_SEARCHED_CHARACTERS = 2_000
_AGENTS = tomllib.loads(Path(__file__).with_name("machines.toml").read_text("utf-8"))
_EXACT_AGENTS = frozenset(_AGENTS["exact"])
_AGENT_PARTS = tuple(part.lower() for part in _AGENTS["parts"])


def is_machine_agent(user_agent: object) -> bool:
    """Don't count a missing user agent as a bot, because most mail providers report opens and
    clicks without the user agent.
    """
    if not isinstance(user_agent, str):
        return False
    text = user_agent[:_MAX_SEARCHED_CHARACTERS].lower()
    return user_agent in _EXACT_AGENTS or any(part in text for part in _AGENT_PARTS)
