"""Multipart bodies that a test writes byte by byte."""

# The header of a request with such a body.
MULTIPART_HEADER = {"Content-Type": 'multipart/form-data; boundary="cut here"'}


def make_multipart(*parts: bytes) -> bytes:
    """Return a multipart body. `parts` are a disposition and a content in turn."""
    pairs = zip(parts[::2], parts[1::2], strict=True)
    written = [
        b"--cut here\r\nContent-Disposition: form-data; %b\r\n\r\n%b\r\n" % pair for pair in pairs
    ]
    return b"".join(written) + b"--cut here--\r\n"
