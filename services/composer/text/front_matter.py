"""Removes front matter from posts.

Front matter is a block of YAML, TOML or JSON that site generators expect before a post.
"""

import json
import re

_MAX_CHARACTERS = 50_000
# Maps the first line of front matter to its possible last lines.
_FENCES = {"---": ("---", "..."), "+++": ("+++",), ";;;": (";;;",)}
_FORMAT_NAME = re.compile(r"[a-z]{0,5}")
_YAML_KEY = re.compile(r"""["']?[^\W\d][\w .-]{0,60}["']?\s?:(?:\s|$)""")
# Matches the first character of YAML lines without a key, such as comments and continuation lines.
_YAML_CONTINUATION = re.compile(r"[\s#\]})'\"-]")


def remove_front_matter(text: str) -> str:
    head = text[:_MAX_CHARACTERS].lstrip()
    start = min(len(text), _MAX_CHARACTERS) - len(head)
    if head.startswith("{"):
        return _remove_json(text, head, start)
    opening, _, rest = head.partition("\n")
    ends = _FENCES.get(opening[:3])
    if ends is None or not _FORMAT_NAME.fullmatch(opening[3:].strip()):
        return text
    lines: list[str] = []
    end = start + len(opening) + 1
    for line in rest.splitlines(keepends=True):
        end += len(line)
        if line.rstrip() in ends:
            return text[end:] if "..." not in ends or _is_yaml(lines) else text
        lines.append(line)
    return text


def _is_yaml(lines: list[str]) -> bool:
    """A `---` line at the start of a post can be a horizontal rule instead."""
    filled = [line for line in lines if line.strip()]
    keys = [line for line in filled if not _YAML_CONTINUATION.match(line)]
    return all(map(_YAML_KEY.match, keys)) and bool(keys or not filled)


def _remove_json(text: str, head: str, start: int) -> str:
    try:
        fields, end = json.JSONDecoder().raw_decode(head)
    except (ValueError, RecursionError):
        return text
    rest = text[start + end :]
    # A JSON object at the start of a post is front matter only if text follows it.
    return rest if fields and rest[:1] in {"\n", "\r"} and rest.strip() else text
