"""Operators: functions of tensors without parameters."""
