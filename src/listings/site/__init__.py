"""The pages for people: the market that everybody sees, over the same service as the API.

Made on the server, complete without a script. Nothing here knows of the API, or of a store.
"""
