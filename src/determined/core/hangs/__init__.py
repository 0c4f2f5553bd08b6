"""What ends or reports a process that no longer makes progress."""
