"""Files of members, as other products and people write them, read row by row."""

from services.mailing.imports.mapping.rows import Description, Problem, Row, Standing
from services.mailing.imports.reading.reader import Reader, open_rows
from services.mailing.imports.reading.sources import RangedFile, Ranges, Source

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
