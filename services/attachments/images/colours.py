"""Builds an ICC profile from the PNG chunks that describe the colours of an image.

Pillow uses the ICC profile to convert the pixels to sRGB. According to the PNG specification,
`cICP` has the highest precedence, followed by `iCCP`, `sRGB`, and `gAMA` with `cHRM`. An invalid
colour chunk is ignored.
"""

import math
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from services.attachments.images.still import is_usable_profile

COLOUR_CHUNKS = frozenset({b"cICP", b"iCCP", b"sRGB", b"gAMA", b"cHRM"})
_CODES = struct.Struct(">4B")
_GAMMA = struct.Struct(">I")
_POINTS = struct.Struct(">8I")
# The layout of an ICC profile's header, which contains, for example, the size and the version.
_PROFILE_HEADER = struct.Struct(">I4xI4s4s4s12x4s28x12s48x")
_PROFILE_VERSION = 0x04300000
_PROFILE_TAG = struct.Struct(">4sII")
# The ICC profile of a screen is a few kilobytes long. The ICC profile of a printer can be as large
# as two megabytes.
_MAX_PROFILE_BYTES = 4 * 1024 * 1024
_MAX_RENDERING_INTENT = 3
_LEVELS = 256
# The PNG chunks `gAMA` and `cHRM` contain integers in units of 1/100,000. A gamma value outside the
# allowed range is ignored, because such values are encoder errors.
_UNIT = 100_000
_MIN_GAMMA_UNITS = 1_000
_MAX_GAMMA_UNITS = 10_000_000
# Some encoders round the gamma value of sRGB, which is about 0.45455. Like libpng, treat every
# gamma value within 5% of the sRGB gamma as sRGB.
_SRGB_GAMMA = 1 / 2.2
_GAMMA_TOLERANCE = 0.05
_POINT_TOLERANCE = 0.005
# HDR images (PQ or HLG) can be brighter than white paper, whose luminance is 203 cd/m² (ITU-R
# BT.2408). The conversion to sRGB preserves the brightness of colours whose luminance is at most
# 80% of white paper's. Brighter colours than 80% of white paper's luminance are compressed into the
# upper 20% of the range.
_WHITE_CANDELAS = 203
_PQ_CANDELAS = 10_000
_HLG_CANDELAS = 1_000
_COMPRESSION_KNEE = 0.8
_HLG_MIDDLE = 0.5
# The white point D50 of ICC profiles, and the Bradford matrix for adapting colours to a different
# white point.
_D50 = (0.9642, 1.0, 0.8249)
_CONES = ((0.8951, 0.2664, -0.1614), (-0.7502, 1.7135, 0.0367), (0.0389, -0.0685, 1.0296))
_FROM_CONES = (
    (0.9869929, -0.1470543, 0.1599627),
    (0.4323053, 0.5183603, 0.0492912),
    (-0.0085287, 0.0400428, 0.9684867),
)
_MAX_COLUMN = 10.0
# The white points of the standard illuminants D65 and C.
_D65_WHITE = (0.3127, 0.3290)
_C_WHITE = (0.310, 0.316)

_Point = tuple[float, float]
_Vector = tuple[float, ...]
_Curve = Callable[[float], float]


@dataclass(frozen=True, slots=True)
class _Primaries:
    white: _Point
    red: _Point
    green: _Point
    blue: _Point


@dataclass(frozen=True, slots=True)
class _Colours:
    """The primary colours and the transfer function of a colour space.

    The transfer function maps the level of a pixel (from 0 to 1) to linear light (from 0 to 1).
    """

    primaries: _Primaries
    curve: _Curve


def build_profile(chunks: Mapping[bytes, bytes], *, is_grey: bool) -> bytes | None:
    """Return ``None`` if the pixels are already sRGB."""
    coded = _read_coded(chunks.get(b"cICP", b""))
    if coded is not None:
        return _build_colour_profile(coded, is_grey=is_grey)
    embedded = _read_embedded_profile(chunks.get(b"iCCP", b""), is_grey=is_grey)
    if embedded is not None:
        return embedded
    intent = chunks.get(b"sRGB", b"")
    if len(intent) == 1 and intent[0] <= _MAX_RENDERING_INTENT:
        return None
    measured = _read_measured(chunks.get(b"gAMA", b""), chunks.get(b"cHRM", b""))
    return None if measured is None else _build_colour_profile(measured, is_grey=is_grey)


def _power_curve(exponent: float) -> _Curve:
    return lambda level: math.pow(level, exponent)


def _curve_with_toe(slope: float, start: float, offset: float, exponent: float) -> _Curve:
    return lambda level: (
        level / slope if level < start else math.pow((level + offset) / (1 + offset), exponent)
    )


_SRGB = _curve_with_toe(12.92, 0.04045, 0.055, 2.4)
_BT709 = _curve_with_toe(4.5, 0.081, 0.099, 1 / 0.45)
_SMPTE240 = _curve_with_toe(4.0, 0.0913, 0.1115, 1 / 0.45)


def _cinema_curve(level: float) -> float:
    return min(1.0, 52.37 / 48 * math.pow(level, 2.6))


def _compress_highlights(light: float) -> float:
    room = 1 - _COMPRESSION_KNEE
    return (
        light
        if light <= _COMPRESSION_KNEE
        else _COMPRESSION_KNEE + room * (1 - math.exp((_COMPRESSION_KNEE - light) / room))
    )


def _pq_curve(level: float) -> float:
    root = math.pow(level, 32 / 2523)
    above = max(root - 107 / 128, 0.0)
    light = math.pow(above / (2413 / 128 - 2392 / 128 * root), 16384 / 2610)
    return _compress_highlights(light * _PQ_CANDELAS / _WHITE_CANDELAS)


def _hlg_curve(level: float) -> float:
    a = 0.17883277
    b = 0.28466892
    c = 0.55991073
    scene = level**2 / 3 if level <= _HLG_MIDDLE else (math.exp((level - c) / a) + b) / 12
    return _compress_highlights(math.pow(scene, 1.2) * _HLG_CANDELAS / _WHITE_CANDELAS)


_SRGB_PRIMARIES = _Primaries(_D65_WHITE, (0.640, 0.330), (0.300, 0.600), (0.150, 0.060))
_NTSC_PRIMARIES = _Primaries(_D65_WHITE, (0.630, 0.340), (0.310, 0.595), (0.155, 0.070))
# Maps the codes in ITU-T H.273 to primary colours. The table omits reserved codes and the code for
# "unspecified".
_CODED_PRIMARIES = {
    1: _SRGB_PRIMARIES,
    4: _Primaries(_C_WHITE, (0.67, 0.33), (0.21, 0.71), (0.14, 0.08)),
    5: _Primaries(_D65_WHITE, (0.64, 0.33), (0.29, 0.60), (0.15, 0.06)),
    6: _NTSC_PRIMARIES,
    7: _NTSC_PRIMARIES,
    8: _Primaries(_C_WHITE, (0.681, 0.319), (0.243, 0.692), (0.145, 0.049)),
    9: _Primaries(_D65_WHITE, (0.708, 0.292), (0.170, 0.797), (0.131, 0.046)),
    10: _Primaries((1 / 3, 1 / 3), (1.0, 0.0), (0.0, 1.0), (0.0, 0.0)),
    11: _Primaries((0.314, 0.351), (0.680, 0.320), (0.265, 0.690), (0.150, 0.060)),
    12: _Primaries(_D65_WHITE, (0.680, 0.320), (0.265, 0.690), (0.150, 0.060)),
    22: _Primaries(_D65_WHITE, (0.630, 0.340), (0.295, 0.605), (0.155, 0.077)),
}
_CODED_CURVES: Mapping[int, _Curve] = {
    **dict.fromkeys((1, 6, 11, 12, 14, 15), _BT709),
    4: _power_curve(2.2),
    5: _power_curve(2.8),
    7: _SMPTE240,
    8: _power_curve(1.0),
    13: _SRGB,
    16: _pq_curve,
    17: _cinema_curve,
    18: _hlg_curve,
}


def _read_coded(body: bytes) -> _Colours | None:
    if len(body) != _CODES.size:
        return None
    primaries_code, curve_code, matrix, is_full_range = _CODES.unpack(body)
    primaries = _CODED_PRIMARIES.get(primaries_code)
    curve = _CODED_CURVES.get(curve_code)
    if primaries is None or curve is None or matrix or is_full_range > 1:
        return None
    return _Colours(primaries, curve if is_full_range else _adapt_narrow_range(curve))


def _adapt_narrow_range(curve: _Curve) -> _Curve:
    """Adapt a transfer function to narrow-range pixels, where 16 is black and 235 is white."""
    return lambda level: curve(min(1.0, max(0.0, (level * 255 - 16) / 219)))


def _read_embedded_profile(body: bytes, *, is_grey: bool) -> bytes | None:
    """Return ``None`` if the profile can't be applied."""
    _, _, rest = body.partition(b"\0")
    if rest[:1] != b"\0":
        return None  # Ignore an ICC profile that is compressed with an unknown method.
    try:
        profile = zlib.decompressobj().decompress(rest[1:], _MAX_PROFILE_BYTES + 1)
    except zlib.error:
        return None
    is_usable = len(profile) <= _MAX_PROFILE_BYTES and is_usable_profile(
        profile, "L" if is_grey else "RGB"
    )
    return profile if is_usable else None


def _read_measured(gamma_body: bytes, primaries_body: bytes) -> _Colours | None:
    if len(gamma_body) != _GAMMA.size:
        return None
    (units,) = _GAMMA.unpack(gamma_body)
    if not _MIN_GAMMA_UNITS <= units <= _MAX_GAMMA_UNITS:
        return None
    gamma = units / _UNIT
    primaries = _read_measured_primaries(primaries_body)
    is_like_srgb = abs(gamma / _SRGB_GAMMA - 1) <= _GAMMA_TOLERANCE
    if is_like_srgb and primaries == _SRGB_PRIMARIES:
        return _Colours(primaries, _SRGB)
    return _Colours(primaries, _power_curve(1 / gamma))


def _read_measured_primaries(body: bytes) -> _Primaries:
    """Return sRGB's primaries if the `cHRM` chunk is missing or its colours are impossible."""
    if len(body) != _POINTS.size:
        return _SRGB_PRIMARIES
    values = [unit / _UNIT for unit in _POINTS.unpack(body)]
    points = list(zip(values[::2], values[1::2], strict=True))
    primaries = _Primaries(*points)
    srgb = (_SRGB_PRIMARIES.white, _SRGB_PRIMARIES.red, _SRGB_PRIMARIES.green, _SRGB_PRIMARIES.blue)
    is_srgb = all(math.dist(*pair) <= _POINT_TOLERANCE for pair in zip(points, srgb, strict=True))
    is_possible = all(x + y <= 1 for x, y in points) and _compute_columns(primaries) is not None
    return primaries if is_possible and not is_srgb else _SRGB_PRIMARIES


def _compute_columns(primaries: _Primaries) -> Sequence[_Vector] | None:
    """Return the X, Y and Z values of each primary colour, adapted to the white point D50."""
    points = [(x, y, 1 - x - y) for x, y in (primaries.red, primaries.green, primaries.blue)]
    x, y = primaries.white
    try:
        white = (x / y, 1.0, (1 - x - y) / y)
        total = _compute_determinant(*points)
        replaced = [(*points[:n], white, *points[n + 1 :]) for n in range(3)]
        strengths = [_compute_determinant(*columns) / total for columns in replaced]
        scales = [
            to / of
            for to, of in zip(_multiply(_CONES, _D50), _multiply(_CONES, white), strict=True)
        ]
    except ZeroDivisionError:
        return None
    columns = list[_Vector]()
    for strength, point in zip(strengths, points, strict=True):
        cones = _multiply(_CONES, tuple(strength * part for part in point))
        adapted = tuple(scale * cone for scale, cone in zip(scales, cones, strict=True))
        columns.append(_multiply(_FROM_CONES, adapted))
    is_light = (
        min(strengths) > 0
        and max(abs(part) for column in columns for part in column) <= _MAX_COLUMN
    )
    return columns if is_light else None


def _compute_determinant(a: _Vector, b: _Vector, c: _Vector) -> float:
    return (
        a[0] * (b[1] * c[2] - b[2] * c[1])
        - b[0] * (a[1] * c[2] - a[2] * c[1])
        + c[0] * (a[1] * b[2] - a[2] * b[1])
    )


def _multiply(matrix: Sequence[_Vector], vector: _Vector) -> _Vector:
    return tuple(sum(map(float.__mul__, row, vector)) for row in matrix)


def _build_colour_profile(colours: _Colours, *, is_grey: bool) -> bytes | None:
    """Return ``None`` for sRGB. A grey image's profile contains only the transfer function."""
    is_srgb = colours.curve is _SRGB and (is_grey or colours.primaries == _SRGB_PRIMARIES)
    columns = None if is_srgb else _compute_columns(colours.primaries)
    if columns is None:
        return None
    light = [colours.curve(level / (_LEVELS - 1)) for level in range(_LEVELS)]
    curve = struct.pack(">4s4xI256H", b"curv", _LEVELS, *(round(65535 * value) for value in light))
    tags = {b"wtpt": _encode_xyz(_D50)}
    if is_grey:
        tags[b"kTRC"] = curve
    else:
        for channel, column in zip((b"r", b"g", b"b"), columns, strict=True):
            tags[channel + b"XYZ"] = _encode_xyz(column)
            tags[channel + b"TRC"] = curve
    table = struct.pack(">I", len(tags))
    bodies = b""
    start = _PROFILE_HEADER.size + len(table) + _PROFILE_TAG.size * len(tags)
    for name, body in tags.items():
        table += _PROFILE_TAG.pack(name, start + len(bodies), len(body))
        bodies += body
    pixels = b"GRAY" if is_grey else b"RGB "
    size = start + len(bodies)
    head = _PROFILE_HEADER.pack(
        size, _PROFILE_VERSION, b"mntr", pixels, b"XYZ ", b"acsp", _encode_fixed(_D50)
    )
    return head + table + bodies


def _encode_xyz(vector: _Vector) -> bytes:
    return b"XYZ " + bytes(4) + _encode_fixed(vector)


def _encode_fixed(vector: _Vector) -> bytes:
    return struct.pack(">3i", *(round(part * 65536) for part in vector))
