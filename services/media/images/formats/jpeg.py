import re

from services.media.images.outcome import truncated

# In coded data a stuffed zero or a restart marker follows 0xFF; any other byte makes a marker.
_MARKER = re.compile(rb"\xff([^\x00\xff\xd0-\xd7])")
_START, _END, _TEMPORARY = 0xD8, 0xD9, 0x01


def check_complete(data: bytes) -> None:
    """Refuse a JPEG whose first image has no end; libjpeg would paint the missing part grey."""
    at = 0
    while found := _MARKER.search(data, at):
        marker = found.group(1)[0]
        at = found.end()
        if marker == _END:
            return
        if marker not in (_START, _TEMPORARY):
            at += max(2, int.from_bytes(data[at : at + 2], "big"))
    raise truncated(f"The JPEG's {len(data):,} bytes stop before its end-of-image marker.")
