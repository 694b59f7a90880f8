"""Data: files of texts, tables and images, sets to fetch, a grammar of sentences; tokenizers, splits and batches."""
