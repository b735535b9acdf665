import pytest

from tests.stack import Stack


@pytest.mark.full("processes")
def test_a_server_ends_where_its_port_is_taken(stack: Stack) -> None:
    """Also while it connects to Redis, when its loops are told to end."""
    for _ in range(3):
        second = stack.start("second", "serve", "--port", str(stack.api_port))
        assert second.process.wait(60) != 0
