"""Reads files of members row by row, whichever product or person wrote them."""
