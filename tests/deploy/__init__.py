"""Tests of the files in deploy/, the Dockerfile and the Compose files."""
