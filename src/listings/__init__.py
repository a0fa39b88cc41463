"""Listings: sellers manage their marketplace listings by program."""

__version__ = "0.1.0"
