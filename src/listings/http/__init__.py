"""The HTTP server: connections, deadlines and limits. It hands each request to the application."""
