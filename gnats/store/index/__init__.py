"""Indexes of messages: sequence sets, the subject tree, filters, expiry times, schedules."""
