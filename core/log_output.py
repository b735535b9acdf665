"""Configures the destination and the format of the process's log."""

import logging
import sys
from typing import Any, TextIO

from core.process.absent_modules import hide_module
from core.settings.store_settings import LogSettings
from core.telemetry import spans

with hide_module("rich"):
    import structlog


class WholeLineHandler(logging.StreamHandler[TextIO]):
    """Writes each log record in a line of its own, even after a full disk has cut a line off.

    The handler bypasses the stream's buffer, which would otherwise keep the rest of the line and
    mix it with later lines. A record that can't be written is lost.
    """

    _has_failed = False

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = f"{self.format(record)}\n"
        except Exception:  # noqa: BLE001 - as in StreamHandler
            self.handleError(record)
            return
        if self._has_failed:
            # End the line that may have been cut off.
            line = f"\n{line}"
        self._has_failed = not self._write_all(line.encode(errors="backslashreplace"))

    def _write_all(self, data: bytes) -> bool:
        try:
            self.stream.flush()
            file = getattr(self.stream.buffer, "raw", self.stream.buffer)
            while data:
                # ``write`` returns ``None`` if a non-blocking pipe is full.
                written = file.write(data)
                if not written:
                    return False
                data = data[written:]
        except (OSError, ValueError):
            return False
        return True


def configure_logging(settings: LogSettings) -> None:
    is_pretty = settings.log_format == "pretty" or (
        settings.log_format == "auto" and sys.stderr.isatty()
    )
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _add_span,
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        # Drop log records by level before formatting, because most log records are below the
        # configured level.
        wrapper_class=structlog.make_filtering_bound_logger(settings.log_level),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    renderers: list[Any] = (
        # Use plain tracebacks, because pretty tracebacks show local variables, which can contain
        # secrets.
        [structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)]
        if is_pretty
        else [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderers],
    )
    handler = WholeLineHandler(sys.stderr)
    handler.setFormatter(formatter)
    logging.basicConfig(level=settings.log_level.upper(), handlers=[handler], force=True)
    _configure_libraries()


def _configure_libraries() -> None:
    # Remove the log handlers of the server libraries, so that every line of the log has the same
    # format.
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "celery", "tornado"):
        logger = logging.getLogger(name)
        logger.handlers = []
        logger.propagate = True
    # Raise the log level of the HTTP clients, because HTTP clients log complete URLs. URLs are
    # secret, because URLs of the object storage contain tokens, and some webhook receivers have no
    # other secret than their URL.
    quiet_level = max(logging.WARNING, logging.getLogger().level)
    for name in ("urllib3", "httpx2"):
        logging.getLogger(name).setLevel(quiet_level)
    # Disable uvicorn's access log, because the API writes an access log with request ids.
    logging.getLogger("uvicorn.access").disabled = True


def _add_span(_logger: Any, _method: str, record: Any) -> Any:
    return {**record, **spans.current_ids()}
