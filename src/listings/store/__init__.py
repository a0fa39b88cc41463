"""Stores behind `listings.contract.store.Store`."""
