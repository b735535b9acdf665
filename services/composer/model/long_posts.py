"""Fits a post into a model's context: whole, or else as parts condensed one by one."""

from collections.abc import Iterator

from integrations.llm.port import LanguageModel
from services.composer.model import answers, prompts, token_estimates
from services.composer.model.time_budget import MAX_CALL_SECONDS, MIN_CALL_SECONDS, TimeBudget
from services.composer.post import PlainPost

_MAX_PARTS = 5
_MAX_HEADING_TOKENS = 200
_MAX_TITLE_TOKENS = 250


def material(plain: PlainPost, llm: LanguageModel, budget: TimeBudget) -> str:
    """The material of a question about the post; raises what the port raises."""
    room = llm.context_tokens - prompts.MAX_ANSWER_TOKENS
    room -= prompts.OVERHEAD_TOKENS + prompts.REPAIR_TOKENS
    title = token_estimates.truncate_to_tokens(plain.title, _MAX_TITLE_TOKENS)
    headings = token_estimates.truncate_to_tokens("\n".join(plain.headings), _MAX_HEADING_TOKENS)
    head = (f"Title: {title}\n\n" if title else "") + (f"{headings}\n\n" if headings else "")
    body = "\n\n".join(plain.paragraphs)
    left = room - token_estimates.estimate(head)
    if token_estimates.estimate(body) <= left:
        return f"{head}{body}"
    parts = list(_parts(plain, room))
    if len(parts) > _MAX_PARTS:
        # Of very many parts the first, the last, and some evenly between.
        step = (len(parts) - 1) / (_MAX_PARTS - 1)
        parts = [parts[round(number * step)] for number in range(_MAX_PARTS)]
    condensed = [_condensed(part, llm, budget) for part in parts]
    return head + "\n\n".join(
        token_estimates.truncate_to_tokens(each, left // len(parts) - 2) for each in condensed
    )


def _parts(plain: PlainPost, room: int) -> Iterator[str]:
    """Paragraphs in order, gathered until a part is full."""
    gathered: list[str] = []
    size = 0
    for paragraph in plain.paragraphs:
        for piece in token_estimates.split_by_tokens(paragraph, room):
            more = token_estimates.estimate(piece) + 1
            if gathered and size + more > room:
                yield "\n\n".join(gathered)
                gathered, size = [], 0
            gathered.append(piece)
            size += more
    if gathered:
        yield "\n\n".join(gathered)


def _condensed(part: str, llm: LanguageModel, budget: TimeBudget) -> str:
    """A part's main points; its beginning when time is short or the answer can't be read."""
    beginning = token_estimates.truncate_to_tokens(part, prompts.MAX_PART_TOKENS)
    # The question about the whole needs its time.
    spare = budget.left - MAX_CALL_SECONDS
    if spare < MIN_CALL_SECONDS:
        return beginning
    seconds = min(spare, MAX_CALL_SECONDS)
    answer = prompts.CONDENSE_PROMPT.ask(
        llm, part, max_tokens=prompts.MAX_PART_TOKENS, seconds=seconds
    )
    try:
        return answers.part(answer) or beginning
    except answers.UnreadableAnswer:
        return beginning
