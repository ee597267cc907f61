"""What every module of the data plane stands on: memory that is freed late, timers, clocks, hash tables."""
