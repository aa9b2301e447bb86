"""Reports: tables for the terminal. Reads records only."""
