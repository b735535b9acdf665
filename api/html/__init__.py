"""The frame of plain HTML pages; only passkeys need a script."""
