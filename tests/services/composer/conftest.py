import pytest

from tests.support.composer.language_model import LanguageModelRun


@pytest.fixture
def model_run(sandbox: str) -> LanguageModelRun:
    return LanguageModelRun(sandbox)
