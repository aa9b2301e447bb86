"""`python -m agentrl`, for launchers that start modules."""

from agentrl.cli import main

main()
