"""Creates the structlog loggers that all modules use."""

from core.process.absent_modules import hide_module

# Prevent structlog from importing Rich, which is slow and only prints pretty tracebacks.
with hide_module("rich"):
    import structlog


def get_logger(name: str) -> structlog.typing.FilteringBoundLogger:
    logger: structlog.typing.FilteringBoundLogger = structlog.get_logger(name)
    return logger
