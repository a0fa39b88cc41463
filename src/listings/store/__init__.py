"""Implementations of `listings.store.store.Store`."""
