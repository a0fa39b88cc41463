"""The market's search index: texts as terms, the index of each machine, the process that writes it, and searches."""
