"""The metrics that each process exports. docs/observability.md lists all metrics."""
