"""Bytes to records: lines, members, documents, tables, and what is set aside."""
