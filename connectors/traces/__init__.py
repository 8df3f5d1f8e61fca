"""Spans of tracing tools."""
