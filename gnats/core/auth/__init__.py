"""What users may publish and subscribe to."""
