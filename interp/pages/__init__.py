"""A model's report, a study's page, several models side by side."""
