"""The HTTP server: connections, deadlines, limits and the exchange handed to the application."""
