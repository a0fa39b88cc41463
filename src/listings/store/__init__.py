"""Implementations of `listings.contract.store.Store`."""
