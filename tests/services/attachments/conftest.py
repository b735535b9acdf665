from collections.abc import Iterator
from contextlib import closing

import pytest

from services.attachments.isolation.converter import ConverterProcess


@pytest.fixture(scope="session")
def converter() -> Iterator[ConverterProcess]:
    with closing(ConverterProcess()) as process:
        yield process
