"""The lesson's own models, in its own words: the oracles."""
