"""Describes the rules that invalid settings break, in the place of pydantic's messages."""

from pydantic_core import ErrorDetails

from core.errors import strip_pydantic_prefix

# Maps pydantic's types of errors to the rule that the setting breaks. The names in braces are in
# the context of the error.
_RULES = {
    "missing": "is required",
    "url_parsing": "must be a URL such as https://www.example.com",
    "url_scheme": "must be a URL that starts with http:// or https://",
    "bool_parsing": "must be true or false",
    "literal_error": "must be {expected}",
    "int_parsing": "must be a whole number",
    "int_parsing_size": "must be a smaller number",
    "float_parsing": "must be a number",
    "decimal_parsing": "must be a number",
    "finite_number": "must be a finite number",
    "greater_than": "must be greater than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "decimal_max_digits": "must have at most {max_digits} digits",
    "decimal_max_places": "must have at most {decimal_places} decimal places",
    "decimal_whole_digits": "must have at most {whole_digits} digits before the point",
    "ip_any_network": "must be IP addresses or networks such as 192.0.2.0/24, separated by commas",
}


def describe_broken_rule(problem: ErrorDetails) -> str:
    """Return the broken rule, which never quotes the value."""
    rule = _RULES.get(problem["type"])
    if rule is None:
        return strip_pydantic_prefix(problem["msg"])
    return rule.format_map({name: _shorten(each) for name, each in problem.get("ctx", {}).items()})


def _shorten(limit: object) -> object:
    return int(limit) if isinstance(limit, float) and limit.is_integer() else limit
