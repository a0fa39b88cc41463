"""HTML pages: the public market and the sellers' console.

The pages are rendered on the server and work without JavaScript. They use the same service as the API. This package
imports neither the API nor a store.
"""
