"""The containers: their frames, sizes and times, read byte by byte before Pillow looks."""
