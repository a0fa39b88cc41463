"""Groups of change sets, and their times: statements and scripts."""
