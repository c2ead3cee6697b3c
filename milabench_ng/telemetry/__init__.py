"""Telemetry: one sampler process per run reads GPUs, tenants and host; the recorder keeps its samples."""
