"""HTML pages, rendered on the server: the public market and the sellers' console. They work without JavaScript."""
