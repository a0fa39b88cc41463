"""The files with which the service is deployed."""
