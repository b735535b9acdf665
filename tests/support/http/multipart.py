"""Multipart request bodies that tests build without an HTTP client library."""

# The headers of a request whose body was built by ``make_multipart``.
MULTIPART_HEADER = {"Content-Type": 'multipart/form-data; boundary="cut here"'}


def make_multipart(*parts: bytes) -> bytes:
    """Build a multipart request body. ``parts`` alternates dispositions and contents."""
    pairs = zip(parts[::2], parts[1::2], strict=True)
    written = [
        b"--cut here\r\nContent-Disposition: form-data; %b\r\n\r\n%b\r\n" % pair for pair in pairs
    ]
    return b"".join(written) + b"--cut here--\r\n"
