"""Several processes of the service on one machine."""
