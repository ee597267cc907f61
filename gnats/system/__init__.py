"""The process: durable files, paths, memory, usage, sampled stacks."""
