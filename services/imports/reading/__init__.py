"""Files of members, as other products and people write them, read row by row."""

from services.imports.reading.reader import Reader, open_rows
from services.imports.reading.rows import Description, Problem, Row, Standing
from services.imports.reading.sources import RangedFile, Ranges, Source

__all__ = [
    "Description",
    "Problem",
    "RangedFile",
    "Ranges",
    "Reader",
    "Row",
    "Source",
    "Standing",
    "open_rows",
]
