"""The ground that all rooms stand on. It is imported before any library is."""

from core.telemetry import hidden_sdk

hidden_sdk.hide()
