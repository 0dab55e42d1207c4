"""What a machine can do, and a record of it. Read `record` first, then a suite; `doctor` looks and advises."""
