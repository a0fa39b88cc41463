"""Drawings that the service itself provides: instead of missing pictures, and as pictures of the demo."""
