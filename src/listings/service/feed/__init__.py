"""The feed of change sets."""
