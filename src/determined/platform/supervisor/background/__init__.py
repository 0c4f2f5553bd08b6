"""Work that takes longer than a tick may: it runs in threads and is collected by the loop."""
