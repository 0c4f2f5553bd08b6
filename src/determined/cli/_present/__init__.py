"""What commands print: tables, descriptions, logs, JSON."""
