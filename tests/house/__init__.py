"""Figures of the product's own code, for `make house` and for the checks of its order."""
