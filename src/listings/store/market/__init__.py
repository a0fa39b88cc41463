"""The market in any database: its entries and statements, and what its stores share."""
