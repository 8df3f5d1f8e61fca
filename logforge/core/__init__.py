"""What knows no stage: files, frames, intervals, SQL expressions, progress, extras."""
