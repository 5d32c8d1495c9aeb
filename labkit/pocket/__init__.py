"""The pocket engine: a small real engine for a machine with no GPU. It imports nothing of the lab but its errors."""
