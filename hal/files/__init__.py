"""Files that nobody vouched for, and the user's cache directory."""
