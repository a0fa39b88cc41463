"""What happened: activity, change sets and their reverts, requests per key, and the report for the operator."""
