"""What clients ask: comparisons, outcomes, logs, downloads, verification. Read-only."""
