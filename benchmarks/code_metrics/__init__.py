"""Calculates metrics of the product's source code, which ``make house`` prints."""
