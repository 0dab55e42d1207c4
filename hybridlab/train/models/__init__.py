"""The reference models: plain modules of torch that do not know that they may be run in parallel."""
