"""The residual stream's toolkit: its parts, what is asked of the logits, replacing, running on."""
