"""What runs inside the sandbox: standard library only. This folder alone is mounted there, read-only."""
