"""Rollouts, without their public interface: looking calls up, executing them, recording them, keeping their states.

The packages in the order of a call: `lookup`, `claiming`, `supply`, `execution`, `conclusion`, `keeping`.
"""
