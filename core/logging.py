"""Creates the structlog loggers that all modules use."""

from core.process.absent_modules import hide_module

# Hide the slow library Rich, which structlog would import for pretty tracebacks that Pressroom
# doesn't print.
with hide_module("rich"):
    import structlog


def get_logger(name: str) -> structlog.typing.FilteringBoundLogger:
    logger: structlog.typing.FilteringBoundLogger = structlog.get_logger(name)
    return logger
