"""Where KV bytes lie and how they reach the device; knows no models, no clocks, no statistics."""
