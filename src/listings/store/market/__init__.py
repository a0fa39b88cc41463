"""The market in any database: the listings that were ever shown, numbered by the order of their latest changes."""
