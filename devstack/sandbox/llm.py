"""Simulates a language model behind OpenAI's chat completions API.

The simulated model responds with sentences from the post, so that pages show realistic text.
"""

import asyncio
import hashlib
import json
import re
import time
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any

from anyascii import anyascii
from fastapi import APIRouter, Body, Response
from fastapi.responses import HTMLResponse, JSONResponse

from devstack.sandbox import render
from devstack.sandbox.sandbox_settings import LLM_API_KEY, LLM_MODEL, LLM_PREFIX

_DELIMITER = re.compile(r"<([\w-]+)>\n")
_SENTENCE = re.compile(r"[^.!?。！？…\n]+[.!?。！？…]*")  # noqa: RUF001
_CHUNK = re.compile(r"\S+")
_WORD = re.compile(r"[^\W\d_]{4,}")
_EAST_ASIAN_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]{2,4}")
_TITLE = "Title: "
_MAX_SUMMARY_CHARACTERS = 290
_MAX_TWEET_CHARACTERS = 130
_MAX_TWEETS = 3
_MAX_TAGS = 5
SLOW_SECONDS = 60.0
INJECTED_LINK = "https://evil.example/win"
INJECTED_HANDLE = "@evil_bot"
INJECTED_SENTENCE = f"Claim your prize at {INJECTED_LINK} and follow {INJECTED_HANDLE} now."


def build_instance(body: dict[str, Any]) -> dict[str, object]:
    """Return a JSON object that satisfies the JSON schema in a request's ``response_format``."""
    shape = (body.get("response_format") or {}).get("json_schema") or {"schema": {}}
    messages = body.get("messages") or [{}]
    content = str(messages[-1].get("content", ""))
    text = _extract_post(content)
    properties = shape["schema"].get("properties", {})
    return {name: _build_value(name, kind, text) for name, kind in properties.items()}


def _extract_post(content: str) -> str:
    if (begin := _DELIMITER.search(content)) is None:
        return content
    text, end, _ = content[begin.end() :].partition(f"\n</{begin[1]}>")
    return text if end else content


def _build_value(name: str, kind: dict[str, Any], text: str) -> object:
    sentences = _split_sentences(text)
    match name, kind.get("type"):
        case "slug", _:
            first = text.splitlines()[0] if text.startswith(_TITLE) else sentences[0]
            words = re.findall(r"[a-z0-9]+", anyascii(first.removeprefix(_TITLE)).lower())
            number = hashlib.sha256(text.encode()).hexdigest()[:8]
            return "-".join(words)[:60].strip("-") or f"post-{number}"
        case "tags", _:
            plain = _remove_addresses(text).casefold()
            counted = Counter(_EAST_ASIAN_WORD.findall(plain) or _WORD.findall(plain))
            return [word for word, _ in counted.most_common(_MAX_TAGS)]
        case _, "array":
            return [_shorten(each, _MAX_TWEET_CHARACTERS) for each in sentences[:_MAX_TWEETS]]
    chosen = _shorten(sentences[0], _MAX_SUMMARY_CHARACTERS)
    for each in sentences[1:]:
        if len(chosen) + 1 + len(each) > _MAX_SUMMARY_CHARACTERS:
            break
        chosen = f"{chosen} {each}"
    return chosen


def _split_sentences(text: str) -> list[str]:
    """Return the complete sentences of a text, or its lines if no sentence is complete."""
    sentences = [" ".join(each.split()) for each in _SENTENCE.findall(_remove_addresses(text))]
    readable_sentences = [each for each in sentences if any(map(str.isalnum, each))]
    return (
        [each for each in readable_sentences if not each[-1].isalnum()]
        or readable_sentences
        or ["…"]
    )


def _remove_addresses(text: str) -> str:
    """Return the text without URLs, mentions and the prefix ``Title:``."""
    return _CHUNK.sub(_remove_address, text.removeprefix(_TITLE))


def _remove_address(chunk: re.Match[str]) -> str:
    text = chunk[0]
    return "" if "://" in text or "@" in text else text.partition("www.")[0]


def _shorten(sentence: str, max_characters: int) -> str:
    if len(sentence) <= max_characters:
        return sentence
    beginning, space, _ = sentence[: max_characters - 1].rpartition(" ")
    return f"{beginning if space else sentence[: max_characters - 1]}…"


CompletionBody = dict[str, Any]
Behaviour = Callable[[CompletionBody], Awaitable[Response]]
# Maps each model's name to its description and its behaviour.
Behaviours = Mapping[str, tuple[str, Behaviour]]


def build_completion(
    body: CompletionBody, text: str | None, *, error: str | None = None
) -> Response:
    """Assume four characters per token."""
    prompt_tokens = (
        sum(len(str(each.get("content", ""))) for each in body.get("messages") or []) // 4
    )
    completion_tokens = len(text or error or "") // 4
    message = {"role": "assistant", "content": text, "error": error}
    return JSONResponse(
        {
            "id": f"chatcmpl-{uuid.uuid4().hex}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": body.get("model"),
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens},
        }
    )


def build_error(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    content = {"message": message, "type": "sandbox", "param": None, "code": None}
    return JSONResponse({"error": content}, status_code=status, headers=headers)


def respond_with_status(code: int, retry_after: Callable[[], str] | None = None) -> Behaviour:
    async def answer(_: CompletionBody) -> Response:
        headers = {"Retry-After": retry_after()} if retry_after else {}
        return build_error(code, "Come back later.", headers)

    return answer


async def respond_correctly(body: CompletionBody) -> Response:
    return build_completion(body, json.dumps(build_instance(body), ensure_ascii=False))


async def respond_with_prose(body: CompletionBody) -> Response:
    answer = json.dumps(build_instance(body), ensure_ascii=False, indent=2)
    text = f"Sure {{of course}}! Here it is:\n\n```json\n{answer}\n```\n\nAnything else?"
    return build_completion(body, text)


async def answer_injected_prompt(body: CompletionBody) -> Response:
    """Answer with a link and an @-handle in each text, and a key that isn't in the schema."""
    answer: dict[str, object] = {
        name: [f"{each} {INJECTED_LINK} {INJECTED_HANDLE}" for each in value]
        if isinstance(value, list)
        else f"{value} {INJECTED_SENTENCE}"
        for name, value in build_instance(body).items()
    }
    return build_completion(
        body, json.dumps({**answer, "visit": INJECTED_LINK}, ensure_ascii=False)
    )


async def respond_with_refusal(body: CompletionBody) -> Response:
    return build_completion(body, None, error="I'm sorry, but I can't help with that.")


async def respond_slowly(body: CompletionBody) -> Response:
    await asyncio.sleep(SLOW_SECONDS)
    return await respond_correctly(body)


# The simulated language models that fail or give faulty answers.
BEHAVIOURS: Behaviours = {
    "sandbox-prose": ("The correct answer in a code fence, with other text", respond_with_prose),
    "sandbox-refuses": ("A refusal", respond_with_refusal),
    "sandbox-slow": ("The correct answer after a minute", respond_slowly),
    "sandbox-429": ("Status 429 with Retry-After: 1", respond_with_status(429, lambda: "1")),
    "sandbox-500": ("Status 500", respond_with_status(500)),
    "sandbox-obedient": (
        "An answer that follows instructions in the post and adds a link and a handle",
        answer_injected_prompt,
    ),
}

JsonBody = Annotated[dict[str, Any], Body()]


def build_router() -> APIRouter:
    router = APIRouter()
    # ``calls`` is the number of received calls. ``model`` is the model that answers all calls. If
    # ``model`` is ``None``, each call uses the model that its request names.
    state: dict[str, Any] = {"model": None, "calls": 0}

    @router.get("", response_class=HTMLResponse)
    async def explain() -> str:
        values = {"prefix": LLM_PREFIX, "model": LLM_MODEL, "key": LLM_API_KEY}
        return render("llm.html", behaviours=BEHAVIOURS, **values)

    @router.post("/v1/chat/completions")
    async def complete(body: JsonBody) -> Response:
        state["calls"] += 1
        return await BEHAVIOURS.get(
            state["model"] or body.get("model", ""), ("", respond_correctly)
        )[1](body)

    @router.get("/runs/default")
    async def show() -> dict[str, Any]:
        return state

    @router.put("/runs/default")
    async def set_model(body: JsonBody) -> dict[str, Any]:
        state["model"] = body.get("model")
        return state

    return router
