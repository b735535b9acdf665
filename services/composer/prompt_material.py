"""Converts a post to text for prompts, and shortens it to fit the model's context window."""

from collections.abc import Iterator

from services.composer.model_answers import UnreadableAnswer, read_answer
from services.composer.model_calls import MAX_CALL_SECONDS, MIN_CALL_SECONDS, ModelCalls
from services.composer.prompts import CONDENSE_PROMPT
from services.composer.text.post import PlainPost
from services.composer.token_estimates import estimate_tokens, split_by_tokens, truncate_to_tokens

# The number of tokens that are reserved for the model's answer.
MAX_ANSWER_TOKENS = 1500
# The number of tokens that are reserved for a repair prompt, which quotes the first answer and
# lists its faults.
REPAIR_TOKENS = 800
MAX_PART_TOKENS = 600
# The number of tokens that are reserved for the instructions and the marks around the post.
OVERHEAD_TOKENS = 700
_MAX_PARTS = 5
_MAX_HEADING_TOKENS = 200
_MAX_TITLE_TOKENS = 250


def build_material(plain: PlainPost, calls: ModelCalls) -> str:
    """Let the model first summarise parts of a post that is too long for the prompt."""
    room = calls.context_tokens - MAX_ANSWER_TOKENS - OVERHEAD_TOKENS - REPAIR_TOKENS
    title = truncate_to_tokens(plain.title, _MAX_TITLE_TOKENS)
    headings = truncate_to_tokens("\n".join(plain.headings), _MAX_HEADING_TOKENS)
    head = (f"Title: {title}\n\n" if title else "") + (f"{headings}\n\n" if headings else "")
    body = "\n\n".join(plain.paragraphs)
    body_room = room - estimate_tokens(head)
    if estimate_tokens(body) <= body_room:
        return f"{head}{body}"
    parts = list(_split_into_parts(plain, room))
    if len(parts) > _MAX_PARTS:
        # If the post has too many parts, use the first and the last part, and evenly spaced parts
        # in between.
        step = (len(parts) - 1) / (_MAX_PARTS - 1)
        parts = [parts[round(number * step)] for number in range(_MAX_PARTS)]
    condensed = [_condense(part, calls) for part in parts]
    return head + "\n\n".join(
        truncate_to_tokens(text, body_room // len(parts) - 2) for text in condensed
    )


def _split_into_parts(plain: PlainPost, room: int) -> Iterator[str]:
    pieces: list[str] = []
    size = 0
    for paragraph in plain.paragraphs:
        for piece in split_by_tokens(paragraph, room):
            piece_size = estimate_tokens(piece) + 1
            if pieces and size + piece_size > room:
                yield "\n\n".join(pieces)
                pieces = []
                size = 0
            pieces.append(piece)
            size += piece_size
    if pieces:
        yield "\n\n".join(pieces)


def _condense(part: str, calls: ModelCalls) -> str:
    """Return a summary, or the beginning of the part if time is short or the answer unreadable."""
    beginning = truncate_to_tokens(part, MAX_PART_TOKENS)
    # Reserve enough time for the final prompt about the whole post.
    spare = calls.seconds_left - MAX_CALL_SECONDS
    if spare < MIN_CALL_SECONDS:
        return beginning
    answer = calls.ask(CONDENSE_PROMPT, part, max_tokens=MAX_PART_TOKENS, seconds=spare)
    try:
        values = read_answer(answer, CONDENSE_PROMPT.schema, CONDENSE_PROMPT.text)
        return str(values["summary"]) or beginning
    except UnreadableAnswer:
        return beginning
