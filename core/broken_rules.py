"""Describes the rules that invalid settings and requests break, instead of Pydantic's messages."""

import re
from collections.abc import Mapping
from typing import Any

from core.errors import strip_pydantic_prefix

# Maps pydantic's types of errors to the broken rule. The names in braces are in the context of the
# error.
_RULES = {
    "missing": "is required",
    "url_parsing": "must be a URL such as https://www.example.com",
    "url_scheme": "must be a URL that starts with http:// or https://",
    "string_type": "must be a string",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "list_type": "must be a list",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
    "enum": "must be {expected}",
    "extra_forbidden": "is unknown",
    "literal_error": "must be {expected}",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_parsing_size": "must be a smaller number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "decimal_type": "must be a number",
    "decimal_parsing": "must be a number",
    "finite_number": "must be a finite number",
    "greater_than": "must be greater than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "decimal_max_digits": "must have at most {max_digits} digits",
    "decimal_max_places": "must have at most {decimal_places} decimal places",
    "decimal_whole_digits": "must have at most {whole_digits} digits before the point",
    "ip_any_network": "must be IP addresses or networks such as 192.0.2.0/24, separated by commas",
}


# The start of Pydantic's messages, such as ``Input should be a valid date``.
_SUBJECT = re.compile(r"^[A-Z]\w* should ")
# The end of messages such as ``List should have at most 5 items after validation, not 6``.
_LENGTH = re.compile(r"(?: after validation)?, not (?:more than )?\d+$")


def describe_broken_rule(problem: Mapping[str, Any]) -> str:
    """Return the broken rule, which never quotes the value.

    ``problem``: the details of a Pydantic error. They may lack the context.
    """
    rule = _RULES.get(problem["type"])
    context = problem.get("ctx") or {}
    if rule is None or not set(re.findall(r"\{(\w+)\}", rule)) <= context.keys():
        return _LENGTH.sub("", _SUBJECT.sub("must ", strip_pydantic_prefix(problem["msg"])))
    return rule.format_map({name: _shorten(each) for name, each in context.items()})


def _shorten(limit: object) -> object:
    return int(limit) if isinstance(limit, float) and limit.is_integer() else limit
