"""Stores behind `listings.contract.Store`."""
