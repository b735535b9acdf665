import pytest

from api.bodies.json_bodies import is_json, parse_media_type, remove_byte_order_mark


@pytest.mark.parametrize(
    "content_type",
    [
        "application/json",
        "APPLICATION/JSON",
        " application/json ; charset=utf-8",
        'application/json;charset="latin-1"',
        "application/vnd.x+json",
        "application/problem+json; charset=utf-8",
    ],
)
def test_media_types_application_json_and_plus_json_are_json(content_type: str) -> None:
    assert is_json(content_type)


@pytest.mark.parametrize(
    "content_type",
    [
        "",
        "json",
        "text/json",
        "text/x+json",
        "application/x/json",
        "application/jsonp",
        "application/json-seq",
        "multipart/form-data; boundary=application/json",
    ],
)
def test_other_media_types_are_not_json(content_type: str) -> None:
    assert not is_json(content_type)


def test_media_type_is_parsed_without_parameters_and_in_lower_case() -> None:
    assert parse_media_type("Multipart/Form-Data; boundary=A") == "multipart/form-data"


def test_only_one_byte_order_mark_is_removed_from_body() -> None:
    mark = b"\xef\xbb\xbf"
    assert remove_byte_order_mark(mark + b"{}") == b"{}"
    assert remove_byte_order_mark(mark + mark + b"{}") == mark + b"{}"
