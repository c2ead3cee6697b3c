"""Telemetry: one sampler process a run reads GPUs, tenants and host; the recorder keeps what it says."""
