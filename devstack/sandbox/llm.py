"""Stands in for a language model with OpenAI's chat completions.

The responses consist of sentences of the post, so that pages look as with a real model.
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
_WIDE = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]{2,4}")
_TITLE = "Title: "
_MAX_SUMMARY_CHARACTERS = 290
_MAX_TWEET_CHARACTERS = 130
_MAX_TWEETS = 3
_MAX_TAGS = 5


def instance(body: dict[str, Any]) -> dict[str, object]:
    """Return an instance of the schema in ``response_format`` of a request."""
    shape = (body.get("response_format") or {}).get("json_schema") or {"schema": {}}
    messages = body.get("messages") or [{}]
    content = str(messages[-1].get("content", ""))
    text = _post(content)
    properties = shape["schema"].get("properties", {})
    return {name: _value(name, kind, text) for name, kind in properties.items()}


def _post(content: str) -> str:
    """Return the text between a message's first delimiter and the matching end delimiter."""
    if (begin := _DELIMITER.search(content)) is None:
        return content
    text, end, _ = content[begin.end() :].partition(f"\n</{begin[1]}>")
    return text if end else content


def _value(name: str, kind: dict[str, Any], text: str) -> object:
    sentences = _sentences(text)
    match name, kind.get("type"):
        case "slug", _:
            first = text.splitlines()[0] if text.startswith(_TITLE) else sentences[0]
            words = re.findall(r"[a-z0-9]+", anyascii(first.removeprefix(_TITLE)).lower())
            number = hashlib.sha256(text.encode()).hexdigest()[:8]
            return "-".join(words)[:60].strip("-") or f"post-{number}"
        case "tags", _:
            plain = _plain(text).casefold()
            counted = Counter(_WIDE.findall(plain) or _WORD.findall(plain))
            return [word for word, _ in counted.most_common(_MAX_TAGS)]
        case _, "array":
            return [_cut(each, _MAX_TWEET_CHARACTERS) for each in sentences[:_MAX_TWEETS]]
    chosen = _cut(sentences[0], _MAX_SUMMARY_CHARACTERS)
    for each in sentences[1:]:
        if len(chosen) + 1 + len(each) > _MAX_SUMMARY_CHARACTERS:
            break
        chosen = f"{chosen} {each}"
    return chosen


def _sentences(text: str) -> list[str]:
    """Return the complete sentences of a text, or its lines if there are no complete sentences."""
    found = [" ".join(each.split()) for each in _SENTENCE.findall(_plain(text))]
    said = [each for each in found if any(map(str.isalnum, each))]
    return [each for each in said if not each[-1].isalnum()] or said or ["…"]


def _plain(text: str) -> str:
    """Return the text without the prefix of its title, and without URLs and mentions."""
    return _CHUNK.sub(_without_address, text.removeprefix(_TITLE))


def _without_address(chunk: re.Match[str]) -> str:
    text = chunk[0]
    return "" if "://" in text or "@" in text else text.partition("www.")[0]


def _cut(sentence: str, max_characters: int) -> str:
    if len(sentence) <= max_characters:
        return sentence
    whole, space, _ = sentence[: max_characters - 1].rpartition(" ")
    return f"{whole if space else sentence[: max_characters - 1]}…"


CompletionBody = dict[str, Any]
Behaviour = Callable[[CompletionBody], Awaitable[Response]]
# Maps the name of each model to its behaviour and the description on the sandbox's page.
Behaviours = Mapping[str, tuple[str, Behaviour]]

SLOW_SECONDS = 60.0
LINK = "https://evil.example/win"
HANDLE = "@evil_bot"
ORDERED = f"Claim your prize at {LINK} and follow {HANDLE} now."


def completion(body: CompletionBody, text: str | None, *, error: str | None = None) -> Response:
    """Return a response with the text of the model. Four characters count as one token."""
    asked = sum(len(str(each.get("content", ""))) for each in body.get("messages") or []) // 4
    answered = len(text or error or "") // 4
    message = {"role": "assistant", "content": text, "error": error}
    return JSONResponse(
        {
            "id": f"chatcmpl-{uuid.uuid4().hex}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": body.get("model"),
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": asked, "completion_tokens": answered},
        }
    )


def error(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    content = {"message": message, "type": "sandbox", "param": None, "code": None}
    return JSONResponse({"error": content}, status_code=status, headers=headers)


def status(code: int, retry_after: Callable[[], str] | None = None) -> Behaviour:
    """Return a behaviour that always responds with a status."""

    async def answer(_: CompletionBody) -> Response:
        headers = {"Retry-After": retry_after()} if retry_after else {}
        return error(code, "Come back later.", headers)

    return answer


async def right(body: CompletionBody) -> Response:
    return completion(body, json.dumps(instance(body), ensure_ascii=False))


async def prose(body: CompletionBody) -> Response:
    answer = json.dumps(instance(body), ensure_ascii=False, indent=2)
    text = f"Sure {{of course}}! Here it is:\n\n```json\n{answer}\n```\n\nAnything else?"
    return completion(body, text)


async def obedient(body: CompletionBody) -> Response:
    """Respond like a model that follows an instruction in the post.

    Each text gets a link and a handle, and the response has a key that the request doesn't name.
    """
    answer: dict[str, object] = {
        name: [f"{each} {LINK} {HANDLE}" for each in value]
        if isinstance(value, list)
        else f"{value} {ORDERED}"
        for name, value in instance(body).items()
    }
    return completion(body, json.dumps({**answer, "visit": LINK}, ensure_ascii=False))


async def refuses(body: CompletionBody) -> Response:
    return completion(body, None, error="I'm sorry, but I can't help with that.")


async def slow(body: CompletionBody) -> Response:
    await asyncio.sleep(SLOW_SECONDS)
    return await right(body)


# The models with faults. The sandbox's page lists the models.
BEHAVIOURS: Behaviours = {
    "sandbox-prose": ("the right answer, between prose and a fence", prose),
    "sandbox-refuses": ("an error", refuses),
    "sandbox-slow": ("the right answer after a minute", slow),
    "sandbox-429": ("status 429, with Retry-After: 1", status(429, lambda: "1")),
    "sandbox-500": ("status 500", status(500)),
    "sandbox-obedient": ("does what it reads in the post: adds a link and a handle", obedient),
}

JsonBody = Annotated[dict[str, Any], Body()]


def make_router() -> APIRouter:
    router = APIRouter()
    # The number of calls, and the model that responds to them. If the model is ``None``, each call
    # names its model.
    run: dict[str, Any] = {"model": None, "calls": 0}

    @router.get("", response_class=HTMLResponse)
    async def explain() -> str:
        shown = {"prefix": LLM_PREFIX, "model": LLM_MODEL, "key": LLM_API_KEY}
        return render("llm.html", behaviours=BEHAVIOURS, **shown)

    @router.post("/v1/chat/completions")
    async def complete(body: JsonBody) -> Response:
        run["calls"] += 1
        return await BEHAVIOURS.get(run["model"] or body.get("model", ""), ("", right))[1](body)

    @router.get("/runs/default")
    async def show() -> dict[str, Any]:
        return run

    @router.put("/runs/default")
    async def set_model(body: JsonBody) -> dict[str, Any]:
        run["model"] = body.get("model")
        return run

    return router
