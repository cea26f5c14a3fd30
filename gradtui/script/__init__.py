"""Somebody's own training script: started as it is, and watched from within its process."""
